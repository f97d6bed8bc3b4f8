"""One process of `benchmarks.replay_client`: a Reverb server, or a client that is measured.

With the replay node's Python it is Reverb's own server or client, with this repository's the own client.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TABLE = 'uniform'
_SECONDS = 2.0  # Of each measurement.
_ROUND_BYTES = 4 << 20  # Inserted or sampled between two looks at the clock.
_MAX_ROUND = 64
_DISTINCT = 8


def rows(size: int) -> list[np.ndarray]:
  """Returns rows of random bytes."""
  generator = random.Random(0)
  return [np.frombuffer(generator.randbytes(size), np.uint8) for _ in range(_DISTINCT)]


def serve(port: int) -> None:
  """Serves a table until the standard input ends; prints a line once it does."""
  from nodes.replay_server import library

  reverb = library.load()
  table = reverb.Table(
    name=TABLE,
    sampler=reverb.UniformSelector(),
    remover=reverb.FifoSelector(),
    max_size=200,
    max_times_sampled=0,
    rate_limiter=reverb.RateLimiter(1.0, 1, -sys.float_info.max, sys.float_info.max),
    extensions=[],
    signature=None,
  )
  server = reverb.Server([table], port, None)
  print('serving', flush=True)
  sys.stdin.read()
  server.Stop()


def of_reverb(address: str, what: str, data: list[np.ndarray]) -> Callable[[int], Any]:
  """Returns a function that inserts or samples some items with Reverb's own client."""
  from nodes.replay_server import library

  reverb = library.load()
  client = reverb.Client(address)
  if what == 'sample':
    sampler = client.NewSampler(TABLE, -1, _MAX_ROUND)
    return lambda count: [int(sampler.GetNextTrajectory()[0]) for _ in range(count)]
  writer = client.NewTrajectoryWriter(reverb.ConstantChunkerOptions(1, 1), False)

  def insert(count: int) -> None:
    for number in range(count):
      writer.CreateItem(TABLE, 1.0, [writer.Append([data[number % _DISTINCT]])], [True])
    writer.Flush(0, 60_000)

  return insert


def of_own(address: str, what: str, data: list[np.ndarray]) -> Callable[[int], Any]:
  """Returns a function that inserts or samples some items with this repository's client."""
  from nodes.unrolls.replay_client import ReplayClient

  client = ReplayClient(address)
  if what == 'sample':
    sampler = client.sampler(TABLE, _MAX_ROUND)
    return lambda count: [next(sampler).key for _ in range(count)]
  writer = client.writer()

  def insert(count: int) -> None:
    for number in range(count):
      writer.insert([data[number % _DISTINCT]], {TABLE: 1.0})
    writer.flush(60)

  return insert


def main(argv: list[str]) -> None:
  """Prints the items a second, and the microseconds of CPU time of an item, as JSON."""
  if argv[1] == 'serve':
    return serve(int(argv[2]))
  whose, what, address, size = argv[1:]
  make = of_reverb if whose == 'reverb' else of_own
  move = make(address, what, rows(int(size)))
  count = max(1, min(_MAX_ROUND, _ROUND_BYTES // int(size)))
  move(count)
  items, began, used = 0, time.monotonic(), time.process_time()
  while time.monotonic() < began + _SECONDS:
    move(count)
    items += count
  used, took = time.process_time() - used, time.monotonic() - began
  print(json.dumps({'items': items / took, 'cpu': 1e6 * used / items}), flush=True)


if __name__ == '__main__':
  main(sys.argv)
  sys.stdout.flush()
  import os

  os._exit(0)  # Reverb's client would wait for its threads.
