"""A prioritized table for tests, and unrolls in it."""

import threading

from nodes.unrolls import tables
from nodes.unrolls.writer import UnrollWriter
from tests.nodes.numbered import COLUMNS, numbered_unrolls
from tests.nodes.replay_size import replay_size
from tests.waiting import wait_until


def prioritized(samples_per_insert=1e6, error_buffer=1e9, max_size=1000, min_size=1):
  return tables.prioritized_table(
    max_size=max_size,
    min_size=min_size,
    samples_per_insert=samples_per_insert,
    error_buffer=error_buffer,
    priority_exponent=0.9,
  )


def write(addresses, count, priorities):
  """Writes unrolls 0..count and waits until replay has them."""
  written = threading.Event()
  writer = UnrollWriter(addresses, COLUMNS, lambda unrolls: priorities)
  writer.start()
  writer.put(numbered_unrolls(0, count), written.set)
  assert written.wait(30)
  wait_until(lambda: sum(map(replay_size, addresses)) == count, writer.check)
  return writer
