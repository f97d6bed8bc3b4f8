"""The replay table of SAC, and the ratio that its presets keep."""

import pytest

from nodes.unrolls.tables import UNIFORM
from programs import estimates, sac
from programs.options import configs


def config(**options):
  return configs.resolve(sac, options)


def test_the_table_samples_uniformly_at_the_ratio():
  options = {'batch_size': 8, 'num_replay_shards': 2, 'min_replay_size': 100, 'replay_size': 500}
  (table,) = config(**options, samples_per_insert=4.0).replay.make_tables(1)
  assert (table.sampler, table.max_size, table.max_times_sampled) == (UNIFORM, 250, 0)
  limiter = table.rate_limiter
  assert (limiter.samples_per_insert, limiter.min_size_to_sample) == (4.0, 50)
  assert (limiter.min_diff + limiter.max_diff) / 2 == 4.0 * 50


def test_unrolls_of_a_group_of_environments_share_an_item_and_the_ratio_stays():
  options = {'batch_size': 64, 'min_replay_size': 100, 'replay_size': 1000}
  replay = config(**options, samples_per_insert=64.0, samples_per_insert_error=800.0).replay
  assert (replay.unrolls_per_item(12), replay.unrolls_per_item(1)) == (4, 1)
  (table,) = replay.make_tables(12)
  limiter = table.rate_limiter
  assert (table.max_size, limiter.min_size_to_sample) == (250, 25)
  assert (limiter.samples_per_insert, limiter.max_diff - 64.0 * 25) == (64.0, 200.0)


@pytest.mark.parametrize('options', [{}, {'batch_size': 64}, {'unroll_length': 4}])
def test_presets_do_an_update_for_each_step_after_the_first_hundredth(options):
  run = config(env='gymnasium:Hopper-v5', num_steps=100_000, **options)
  assert estimates.expected(run).updates == pytest.approx(99_000, rel=0.002)
  assert run.replay.min_replay_size * run.agent.unroll_length == pytest.approx(1000, rel=0.1)


def test_priorities_have_no_exponent():
  with pytest.raises(ValueError, match=r'--priority_exponent=0\.6 has no effect'):
    config(priority_exponent=0.6).validate()
