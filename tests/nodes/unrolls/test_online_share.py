"""The share of online data in the batches of a reader of two tables."""

import itertools

import numpy as np
import pytest

from nodes.unrolls.mixed_reader import MixedReader
from nodes.unrolls.online_share import OnlineShare, Quotas
from nodes.unrolls.reader import Batch

BATCH = 8


class Reader:
  """Samples numbers `first`, `first` + 1, and so on."""

  batch_size = BATCH

  def __init__(self, first):
    self.first, self.batches = first, 0

  def __iter__(self):
    for start in itertools.count(self.first, BATCH):
      self.batches += 1
      ids = np.arange(start, start + BATCH)
      yield Batch(
        {'x': ids[:, None]}, ids, ids.astype(np.uint64), np.full(BATCH, 0.1), np.full(BATCH, 10.0)
      )


def numbers(reader, batches):
  """Returns the online and the offline numbers of each batch."""
  for batch in itertools.islice(iter(reader), batches):
    assert len(batch.unroll_ids) == BATCH
    assert np.all(batch.unrolls['x'][:, 0] == batch.unroll_ids)
    yield [[int(i) for i in batch.unroll_ids if (i >= 10**6) == offline] for offline in (0, 1)]


@pytest.mark.parametrize('share', [0.0, 0.05, 0.37, 0.5, 1.0])
def test_the_share_is_within_a_hundredth_and_online_data_set_the_pace(share):
  online, offline = Reader(0), Reader(10**6)
  quotas = Quotas(OnlineShare(share, 0), BATCH, lambda: 0)
  found = list(numbers(MixedReader([online, offline], quotas), 200))
  ours = [i for some, _ in found for i in some]
  theirs = [i for _, some in found for i in some]
  assert len(ours) / (200 * BATCH) == pytest.approx(share, abs=0.01)
  assert quotas.drawn == (len(ours), len(theirs))
  # Of every batch of online data some rows are kept; of offline data, each.
  assert online.batches == 200
  for number, (some, _) in enumerate(found):
    assert {i // BATCH for i in some} <= {number}
  assert theirs == list(range(10**6, 10**6 + len(theirs)))
  # Not always the first rows, which are of the first server.
  assert share in (0, 1) or len({i % BATCH for i in ours}) == BATCH


def test_the_share_rises_with_the_learner_steps():
  share = OnlineShare(0.5, 100)
  assert [share.at(steps) for steps in (0, 50, 100, 1000)] == [0.0, 0.25, 0.5, 0.5]
  steps = itertools.count()
  quotas = Quotas(share, BATCH, lambda: next(steps))
  found = list(numbers(MixedReader([Reader(0), Reader(10**6)], quotas), 300))
  for part, wanted in ((found[:50], 0.1225), (found[50:100], 0.3725), (found[100:], 0.5)):
    of_part = sum(len(some) for some, _ in part) / (len(part) * BATCH)
    assert of_part == pytest.approx(wanted, abs=0.01)


def test_without_quotas_a_batch_has_all_rows_of_every_reader():
  reader = MixedReader([Reader(0), Reader(10**6)])
  first, second = itertools.islice(iter(reader), 2)
  assert first.unroll_ids.tolist() == [*range(8), *range(10**6, 10**6 + 8)]
  assert second.unroll_ids.tolist() == [*range(8, 16), *range(10**6 + 8, 10**6 + 16)]
