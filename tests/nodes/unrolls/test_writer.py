"""The writer of unrolls, against a real Reverb server."""

import itertools
import threading

import numpy as np
import pytest

from nodes.runtime import lifecycle, watchdog
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.writer import UnrollWriter
from tests.nodes.numbered import COLUMNS, L, numbered_unrolls
from tests.waiting import DEADLINE, wait_until


@pytest.mark.slow
def test_a_full_queue_holds_the_writer_back_and_drops_nothing(queue_address):
  writer = UnrollWriter([queue_address], COLUMNS)
  writer.start()
  released = [threading.Event() for _ in range(4)]
  for i in range(4):  # The queue takes 4 items, these are 12.
    writer.put(numbered_unrolls(3 * i, 3), released[i].set)
  assert released[0].wait(30)
  assert not released[1].wait(1.0), 'the second batch was released though it does not fit'
  reader = UnrollReader([queue_address], COLUMNS, 3, max_in_flight=1)
  assert reader.measure()['replay_size'] == 4
  batches = iter(reader)
  seen = [b.unrolls.environment_id.tolist() for b in itertools.islice(batches, 4)]
  assert list(itertools.chain(*seen)) == list(range(12))
  writer.close()


def test_a_writer_that_fails_says_so(queue_address):
  writer = UnrollWriter([queue_address], COLUMNS)
  writer.start()
  bad = numbered_unrolls(0, 2)._replace(action=np.zeros((1, L), np.int32))
  writer.put(bad, lambda: None)
  with pytest.raises(ValueError, match='action is'):
    wait_until(lambda: False, writer.check)
  writer.close()


def test_a_writer_that_hangs_says_so(queue_address, monkeypatch):
  monkeypatch.setattr(watchdog, 'LIMIT_SECONDS', 0.0)
  resumed = threading.Event()
  writer = UnrollWriter([queue_address], COLUMNS, produced=lambda ids: resumed.wait(DEADLINE))
  writer.start()
  writer.put(numbered_unrolls(0, 2), lambda: None)
  with pytest.raises(TimeoutError, match='the writing of unrolls has taken longer'):
    wait_until(lambda: False, writer.check)
  resumed.set()
  writer.close()


def test_a_writer_that_waits_for_a_full_table_does_not_hang(queue_address, monkeypatch):
  released = threading.Event()
  writer = UnrollWriter([queue_address], COLUMNS)
  writer.start()
  writer.put(numbered_unrolls(0, 5), released.set)  # The queue takes 4.
  wait_until(lambda: writer.written == 5)
  monkeypatch.setattr(watchdog, 'LIMIT_SECONDS', 0.0)
  for _ in range(100):
    writer.check()
  assert writer.accepted == 0 and not released.is_set()
  writer.close()


def test_a_writer_that_is_closed_leaves_the_last_chunk_to_a_thread_that_ends_before_the_exit():
  class Recorder:
    def close(self):
      closers.append(threading.current_thread())
      resumed.wait(DEADLINE)

  closers, resumed = [], threading.Event()
  writer = UnrollWriter([], COLUMNS, recorder=Recorder())
  writer.close()
  wait_until(lambda: closers)
  resumed.set()
  assert closers[0].name == lifecycle.FINISH and not closers[0].daemon
