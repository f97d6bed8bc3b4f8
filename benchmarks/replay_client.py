"""Measures the client of replay beside Reverb's own, on a server of Reverb: they take turns.

python -m benchmarks.replay_client
python -m benchmarks.replay_client --repeats=5

Prints the medians for items of random bytes: packed unrolls are compressed already.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys

from absl import app, flags

from benchmarks import output
from benchmarks.running import ROOT
from launchers import binding
from nodes.replay_server import interpreter

_REPEATS = flags.DEFINE_integer('repeats', 3, 'measurements of each', 1)
_SIZES = flags.DEFINE_list('kilobytes', ['1', '16', '256'], 'sizes of an item')
_PYTHON = {'own': sys.executable, 'reverb': interpreter.PYTHON}
# Without what is for one of the two Pythons.
_ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith('PYTHON')}


def _command(whose: str, *arguments: str) -> list[str]:
  return [_PYTHON[whose], '-m', 'benchmarks.replay_client_process', *arguments]


def measure(whose: str, *arguments: str) -> dict[str, float]:
  """Returns the measurements of one process, by name."""
  command = _command(whose, whose, *arguments)
  run = subprocess.run(command, cwd=ROOT, env=_ENVIRONMENT, capture_output=True, check=True)
  return json.loads(run.stdout)


def main(argv: list[str]) -> None:
  """Measures and prints."""
  (port,) = binding.free_ports(1)
  with subprocess.Popen(
    _command('reverb', 'serve', str(port)),
    cwd=ROOT,
    env=_ENVIRONMENT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
  ) as server:
    assert server.stdout is not None
    assert server.stdout.readline()
    address = f'127.0.0.1:{port}'
    number = '>9,.0f'
    table = output.Table(
      items='<16',
      call='<7',
      own='>9,.0f',
      reverb=number,
      ratio='>6.2f',
      own_MB_per_s=number,
      own_us_CPU='>9,.1f',
      reverb_us_CPU='>9,.1f',
    )
    for kilobytes in _SIZES.value:
      for what in ('insert', 'sample'):
        size = 1024 * int(kilobytes)
        runs: dict[str, list[dict[str, float]]] = {'own': [], 'reverb': []}
        for _ in range(_REPEATS.value):
          for whose, found in runs.items():
            found.append(measure(whose, what, address, str(size)))
        own, reverb = (
          {name: statistics.median(run[name] for run in found) for name in found[0]}
          for found in runs.values()
        )
        table.add(
          f'{kilobytes} KB',
          what,
          own['items'],
          reverb['items'],
          own['items'] / reverb['items'],
          own['items'] * size / 1e6,
          own['cpu'],
          reverb['cpu'],
        )


if __name__ == '__main__':
  app.run(main)
