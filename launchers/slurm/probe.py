"""Probes a host of a Slurm job before nodes start: its free ports, and the names that it can resolve.

The module is run with FIRST_PORT COUNT PYTHONS HOST..., and prints one JSON object. If it cannot run,
the shell script of `command` prints one word for the missing part. `ports` parses both.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Any

from environments import entry
from nodes.runtime import listening

SECONDS = 120.0  # For the replies of all hosts.
# Below the range of ports for outgoing connections, so that a restarted node finds its port free.
_LOWEST, _HIGHEST = 10_000, 32_000
# Run by sh: $1 is the job file, $2 the interpreter; the command of this module begins with it. The
# script prints fixed words and no paths, so that special characters in a path cannot break the line.
_SCRIPT = """
file=$1; shift
if ! [ -r "$file" ]; then missing=file
elif ! [ -x "$1" ]; then missing=interpreter
elif ! "$@"; then missing=code
else exit 0
fi
echo "launchpod-host-lacks $missing $SLURMD_NODENAME"
"""
_LACKS = {
  'file': 'does not have the file {job_file}',
  'interpreter': 'has no interpreter {python}',
  'code': 'cannot run the code with {python}',
}


def command(
  python: str,
  job_file: str,
  first_port: int,
  num_ports: int,
  hosts: Iterable[str],
  others: Iterable[str] = (),
) -> list[str]:
  """Returns the command of a host's step; `ports` parses its output.

  Args:
    python: the interpreter of the nodes.
    job_file: path of the job file, which every host must have.
    first_port: first port to try.
    num_ports: number of ports to find.
    hosts: names that the host must resolve.
    others: further interpreters that the host must have.
  """
  arguments = str(first_port), str(num_ports), os.pathsep.join(others), *hosts
  probe = entry.command(python, 'launchers.slurm.probe', *arguments)
  return ['sh', '-c', _SCRIPT, 'sh', job_file, *probe]


def output(
  steps: Sequence[subprocess.Popen[str]], asked: Sequence[int], seconds: float = SECONDS
) -> list[str]:
  """Returns the lines that steps print; kills those that run after a deadline or a request to stop.

  Args:
    steps: processes whose stdout is a pipe.
    asked: signal handlers may append to it during the call.
    seconds: the deadline of all steps together.
  """
  end = time.monotonic() + seconds
  lines: list[str] = []
  for step in steps:
    while True:
      with contextlib.suppress(subprocess.TimeoutExpired):
        lines += step.communicate(timeout=0.2)[0].splitlines()
        break
      if asked or time.monotonic() > end:
        step.kill()
  return lines


def ports(lines: Iterable[str], python: str, job_file: str) -> dict[str, list[int]]:
  """Returns the free ports of each host that has reported them, by host name.

  Args:
    lines: output of the steps; other lines, such as the site's, are ignored.
    python: as for `command`.
    job_file: as for `command`.

  Raises:
    ValueError: if a host lacks something; one sentence.
  """
  found: dict[str, list[int]] = {}
  for line in lines:
    words, report = line.split(), dict[str, Any]()
    if words[:1] == ['launchpod-host-lacks'] and len(words) == 3 and words[1] in _LACKS:
      problem = _LACKS[words[1]].format(job_file=job_file, python=python)
      report = {'host': words[2], 'problem': problem}
    elif line.startswith('{'):
      with contextlib.suppress(ValueError):
        report = json.loads(line)
    if report.get('problem'):
      raise ValueError(
        f'host {report["host"]} {report["problem"]}; every host needs the run directory, the code '
        'and its environment at the same path, and the names of the others.'
      )
    if 'ports' in report:
      found[report['host']] = report['ports']
  return found


def first_port(job_id: int) -> int:
  """Returns the first port to try; it depends on the job, because jobs may share a host."""
  return _LOWEST + job_id * 97 % (_HIGHEST - _LOWEST)


def free_ports(first: int, count: int) -> list[int]:
  """Returns the next free ports of this host, starting at `first`.

  Raises:
    OSError: if fewer than `count` ports are free.
  """
  size = _HIGHEST - _LOWEST
  ours = (_LOWEST + (first - _LOWEST + offset) % size for offset in range(size))
  return listening.close(listening.bind_first(ours, count))


def _problem(pythons: list[str], hosts: list[str]) -> str:
  for python in filter(None, pythons):
    if not os.access(python, os.X_OK):
      return _LACKS['interpreter'].format(python=python)
  for host in hosts:
    try:
      socket.getaddrinfo(host, None)
    except OSError as error:
      return f'does not know the name {host} ({error.strerror})'
  return ''


def main(argv: list[str]) -> None:
  """Prints the JSON object: host, ports, problem."""
  report = {
    'host': os.environ['SLURMD_NODENAME'],
    'ports': free_ports(int(argv[1]), int(argv[2])),
    'problem': _problem(argv[3].split(os.pathsep), argv[4:]),
  }
  print(json.dumps(report))
