"""The size of a queue, and of what is in transfer from it."""

import pytest

from programs import impala
from programs.options import configs
from programs.parts.learner import training_options


def config_of(**values):
  return configs.make_config(impala, {'env': 'catch', **values})


@pytest.mark.parametrize(
  'values, size',
  [
    ({'envs_per_actor': 16, 'batch_size': 64}, 32),
    ({'envs_per_actor': 64, 'batch_size': 64}, 64),  # An item has 64 unrolls.
    ({'envs_per_actor': 8, 'batch_size': 64, 'num_replay_shards': 8}, 64),  # An item in each.
    ({'envs_per_actor': 8, 'batch_size': 64, 'queue_size': 8}, 8),
  ],
)
def test_a_queue_holds_half_a_batch_and_an_item_in_each_shard(values, size):
  config = config_of(**values)
  assert config.replay.queue_size == size
  assert training_options(config, 'learner/0').max_in_flight == size // 2
