"""The two processes of `benchmarks.calls`, which know nothing of this repository but `courier`.

python calls_process.py serve PATH     serves; prints its port
python calls_process.py call PATH PORT [tcp]     calls; prints what it has measured, as JSON

PATH is the directory from which `courier` is imported; '' for the installed packages. With 'tcp' our
client does not use the Unix socket.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_PARAMETERS = 25  # Arrays of 4 MB.
_REPORT = 'actor/3', {f'measured_value_{i}': i / 7 for i in range(50)}


def serve(courier: Any) -> None:
  """Serves until stdin is closed."""
  parameters = [np.full(1_000_000, i, np.float32) for i in range(_PARAMETERS)]
  server = courier.Server()
  server.Bind('echo', lambda value: value)
  server.Bind('parameters', lambda: parameters)
  server.Bind('cpu', time.process_time)
  server.Start()
  print(server.port, flush=True)
  sys.stdin.read()


def call(courier: Any, port: str, encodes_data: bool) -> dict[str, float]:
  """Returns the measurements, by name.

  Args:
    courier: the package.
    port: of the server.
    encodes_data: whether calls of the package may carry data instead of pickles.
  """
  client = courier.Client(f'localhost:{port}')
  measured = {}
  with_data = courier.Client(f'localhost:{port}', data_only=True) if encodes_data else None
  for name, value, repeats in (
    ('10 B', bytes(10), 2000),
    ('100 kB', np.zeros(100_000, 'b'), 500),
    ('report', _REPORT, 2000),
    ('data report', _REPORT, 2000),
  ):
    asked = with_data if name == 'data report' else client
    if asked is None:
      continue
    before = time.process_time() + client.cpu()
    seconds = _times(functools.partial(asked.echo, value), repeats)
    used = time.process_time() + client.cpu() - before
    measured[f'{name} p50, us'] = 1e6 * statistics.median(seconds)
    measured[f'{name} p99, us'] = 1e6 * statistics.quantiles(seconds, n=100)[-1]
    measured[f'{name} CPU, us'] = 1e6 * used / repeats
  seconds = _times(lambda: [r.result() for r in [client.futures.echo(i) for i in range(1000)]], 3)
  measured['futures/s'] = 1000 / statistics.median(seconds)
  for name, asked in (('parameters', client), ('data params', with_data)):
    if asked is not None:
      seconds = _times(asked.parameters, 5)
      measured[f'{name}, MB/s'] = 4 * _PARAMETERS / statistics.median(seconds)
  return measured


def _times(function: Callable[[], object], repeats: int) -> list[float]:
  """Returns the seconds of each of some calls, after one that is not measured."""
  function()
  times = [time.perf_counter()]
  for _ in range(repeats):
    function()
    times.append(time.perf_counter())
  return [after - before for before, after in itertools.pairwise(times)]


def main(mode: str, path: str, port: str = '', transport: str = '') -> None:
  """Runs one of the processes, and exits without the end of the interpreter."""
  sys.path[:1] = [path] if path else []
  import courier

  if transport == 'tcp':
    from courier import sockets

    sockets._is_here = lambda *address: False
  if mode == 'serve':
    serve(courier)
  else:
    print(json.dumps(call(courier, port, bool(path))), flush=True)
  os._exit(0)


if __name__ == '__main__':
  main(*sys.argv[1:])
