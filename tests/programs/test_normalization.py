"""Which runs normalise their observations, and which may not."""

import dm_env.specs
import numpy as np
import pytest

from agents import spaces
from agents.vtrace.config import VTraceConfig
from programs import registry
from programs.options import configs

PIXELS = """
import numpy as np
from environments.catch import Catch

class Pixels(Catch):
  def observation_spec(self):
    return super().observation_spec().replace(dtype=np.uint8, minimum=0, maximum=1)

  def reset(self):
    return self._bytes(super().reset())

  def step(self, action):
    return self._bytes(super().step(action))

  def _bytes(self, timestep):
    return timestep._replace(observation=timestep.observation.astype(np.uint8))

def make(task, num_envs, seed):
  return Pixels(num_envs, seed)
"""


@pytest.mark.parametrize('program', ['sebulba', 'impala'])
@pytest.mark.parametrize(
  'agent, env, observations, rewards',
  [
    ('ppo', 'gymnasium:HalfCheetah-v5', True, True),
    ('ppo', 'gymnasium:Hopper-v5', True, True),
    ('ppo', 'dm_control:cartpole/swingup', True, True),
    ('ppo', 'gymnasium:Acrobot-v1', False, True),
    ('ppo', 'gymnasium:Pendulum-v1', False, True),
    ('ppo', 'minatar:Breakout', False, False),
    ('vtrace', 'cartpole', False, True),
    ('vtrace', 'gymnasium:Acrobot-v1', False, True),
    ('vtrace', 'gymnasium:Pendulum-v1', False, False),  # Its rewards have a scale of their own.
    ('vtrace', 'atari:Pong', False, False),
  ],
)
def test_presets_normalise_what_has_no_common_scale(program, agent, env, observations, rewards):
  config = configs.make_config(registry.load(program), {'env': env, 'agent': agent})
  assert (config.agent.normalize_observations, config.agent.normalize_rewards) == (
    observations,
    rewards,
  )


@pytest.mark.parametrize('agent', ['vtrace', 'ppo'])
def test_bytes_are_rejected_before_a_program_starts(tmp_path, agent):
  file = tmp_path / 'pixels.py'
  file.write_text(PIXELS)
  values = {'env': f'{file}:make', 'agent': agent}
  module = registry.load('sebulba')
  configs.make_config(module, values)
  with pytest.raises(ValueError, match=r'^--normalize_observations .* uint8.*: leave it out\.$'):
    configs.make_config(module, values | {'normalize_observations': True})


@pytest.mark.parametrize(
  'observation',
  [
    dm_env.specs.DiscreteArray(5),
    {
      'observation': dm_env.specs.DiscreteArray(5),
      'action_mask': dm_env.specs.BoundedArray((3,), np.int8, 0, 1),
    },
  ],
)
def test_labels_are_rejected_since_no_number_between_them_means_anything(observation):
  with pytest.raises(ValueError, match=r'^--normalize_observations .* labels: leave it out\.$'):
    spaces.check_normalization(VTraceConfig(normalize_observations=True), observation)
  spaces.check_normalization(VTraceConfig(), observation)
