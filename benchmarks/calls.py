"""Measures calls between two processes: by this repository's Courier, and by an installed C++ one.

python -m benchmarks.calls
python -m benchmarks.calls --repeats=9

Ours are measured over a Unix socket, as between processes of one machine, over TCP, and over TCP with
TLS. Prints the medians of --repeats pairs of processes for each, which take turns, and two ratios: of
TLS to TCP, and of ours over a Unix socket to the installed one.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from absl import app, flags

from benchmarks import output
from benchmarks.running import ROOT
from launchers import certificate

_REPEATS = flags.DEFINE_integer('repeats', 5, 'pairs of processes for each implementation', 1)
_PROCESS = str(pathlib.Path(__file__).with_name('calls_process.py'))
OURS, TCP, TLS, INSTALLED = 'ours', 'tcp', 'tls', 'installed'


def measure(path: str, transport: str = '', pem: str = '') -> dict[str, float]:
  """Returns the measurements of one pair of processes, by name.

  Args:
    path: the directory from which they import `courier`; '' for the installed packages.
    transport: 'tcp' if they must not use a Unix socket.
    pem: path of the key and the certificate, for TLS; '' for no TLS.
  """
  command = [sys.executable, _PROCESS]
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  environment[certificate.VARIABLE] = pem
  with subprocess.Popen(
    [*command, 'serve', path],
    env=environment,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
  ) as server:
    assert server.stdout is not None and server.stdin is not None
    port = server.stdout.readline().strip()
    caller = [*command, 'call', path, port, transport]
    measured = subprocess.run(caller, env=environment, capture_output=True, text=True, check=True)
    server.stdin.close()
  return json.loads(measured.stdout)


def installed() -> bool:
  """Returns whether the installed packages have a `courier`."""
  code = 'import sys; del sys.path[0]; import courier'
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  return not subprocess.run(
    [sys.executable, '-c', code], env=environment, capture_output=True
  ).returncode


def main(argv: list[str]) -> None:
  """Measures and prints."""
  with tempfile.TemporaryDirectory() as directory:
    pem = pathlib.Path(directory, 'run.pem')
    pem.write_bytes(certificate.new())
    kinds = {
      OURS: (str(ROOT),),
      TCP: (str(ROOT), 'tcp'),
      TLS: (str(ROOT), 'tcp', str(pem)),
    } | ({INSTALLED: ('',)} if installed() else {})
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    for _ in range(_REPEATS.value):
      for name, arguments in kinds.items():
        runs[name].append(measure(*arguments))
  medians = {
    name: {key: statistics.median(run[key] for run in measured) for key in measured[0]}
    for name, measured in runs.items()
  }
  table = output.Table(
    measured='<20',
    ours='>10,.0f',
    tcp='>10,.0f',
    tls='>10,.0f',
    tls_to_tcp='>12.2f',
    installed='>10,.0f',
    ratio='>8.2f',
  )
  for key, value in medians[OURS].items():
    tcp, tls = medians[TCP][key], medians[TLS][key]
    other = medians.get(INSTALLED, {}).get(key)
    table.add(key, value, tcp, tls, tls / tcp, other, other and value / other)


if __name__ == '__main__':
  app.run(main)
