"""The replay tables of programs with Bellman updaters."""

import pytest

from agents.options import replace
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS, BatchPart
from programs import qt_opt
from programs.options import configs


def config(**options):
  return configs.resolve(qt_opt, options)


def test_the_ratio_of_replay_holds_for_updaters_and_each_copy_is_sampled_once():
  options = {
    'batch_size': 16,
    'num_replay_shards': 2,
    'min_replay_size': 100,
    'samples_per_insert': 4.0,
  }
  alone, apart = (config(**options, **more).replay for more in ({'bellman_updaters': 0}, {}))
  assert (alone.written_tables, alone.batch_parts) == ((UNROLLS,), (BatchPart(UNROLLS, 16),))
  assert (apart.written_tables, apart.batch_parts) == ((ORIGINALS,), (BatchPart(RELABELLED, 16),))
  (plain,), (originals, train) = alone.make_tables(1), apart.make_tables(1)
  assert (plain.name, originals.name, train.name) == (UNROLLS, ORIGINALS, RELABELLED)
  assert originals.max_size == plain.max_size == 50_000
  assert originals.rate_limiter == plain.rate_limiter
  limiter = train.rate_limiter
  assert (limiter.samples_per_insert, limiter.min_diff, limiter.max_diff) == (1.0, 0.0, 80.0)
  assert (train.max_size, limiter.min_size_to_sample) == (80, 8)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'train_size': 10, 'batch_size': 16}, '--train_size=10 is smaller than --batch_size=16'),
    ({'priority_exponent': 0.6}, '--priority_exponent=0.6 has no effect'),
  ],
)
def test_options_without_a_meaning_are_rejected(options, message):
  with pytest.raises(ValueError, match=message):
    config(**options).validate()
  replace(config(**options), bellman_updaters=0, priority_exponent=0.0, train_size=0).validate()
