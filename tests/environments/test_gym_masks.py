"""Action masks in the `info` of Gymnasium's environments."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from agents.types import Timestep
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments import registry, seeding
from environments.gym import GymnasiumBatch
from environments.gym_masks import InfoMask

TAXI, OPTIONS = 'gymnasium:Taxi-v4', 'action_mask=true,max_episode_steps=7'
TWO, THREE = np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8)


class TwoActions(gymnasium.Env):
  """Two actions at once, whose mask every other step lacks."""

  def __init__(self, mask, shown=None):
    self.observation_space = shown or spaces.Dict({'x': spaces.Box(0, 1, (2,))})
    self.action_space = spaces.MultiDiscrete([2, 3])
    self._mask, self._steps = mask, 0

  def _info(self):
    return {} if self._steps % 2 else {'action_mask': self._mask}

  def reset(self, seed=None, options=None):
    super().reset(seed=seed)
    return self.observation_space.sample(), self._info()

  def step(self, action):
    self._steps += 1
    return self.observation_space.sample(), 0.0, False, False, self._info()


def _batch(make):
  copies = SyncVectorEnv([make] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
  return GymnasiumBatch(InfoMask(copies), 0)


def test_rows_of_taxi_have_its_masks_across_episodes_beside_the_same_observations():
  batch, plain = (registry.make(TAXI, 3, 5, o) for o in (OPTIONS, 'max_episode_steps=7'))
  assert batch.observation_spec()['observation'] == plain.observation_spec()
  assert batch.observation_spec()['action_mask'].shape == (6,)
  single = gymnasium.make('Taxi-v4', max_episode_steps=7)
  _, info = single.reset(seed=seeding.spawn(5, 3)[0])
  row, expected = batch.reset(), plain.reset()
  rng, done = np.random.default_rng(0), False
  for _ in range(20):
    masks = row.observation['action_mask']
    assert masks.dtype == np.int8 and masks.shape == (3, 6)
    np.testing.assert_array_equal(masks[0], info['action_mask'])
    np.testing.assert_array_equal(row.observation['observation'], expected.observation)
    action = rng.integers(6, size=3).astype(np.int32)
    row, expected = batch.step(action), plain.step(action)
    if done:
      _, info = single.reset()
      done = False
    else:
      _, _, terminated, truncated, info = single.step(action[0])
      done = terminated or truncated


@pytest.mark.slow
def test_an_agent_never_takes_a_masked_action_in_taxi():
  num_envs = 16
  batch = registry.make(TAXI, num_envs, 0, OPTIONS)
  config = VTraceConfig(unroll_length=2, mlp_sizes=(8,))
  agent = VTrace(config, batch.observation_spec(), batch.action_spec())
  params, act = jax.jit(agent.init)(jax.random.key(0)).params, jax.jit(agent.act)
  row, core_state = batch.reset(), agent.initial_core_state(num_envs)
  illegal = 0
  for t in range(40):
    keys = jax.random.split(jax.random.key(t), num_envs)
    output = act(params, core_state, Timestep(*row), np.ones(num_envs, np.float32), keys)
    action, mask = np.asarray(output.action), row.observation['action_mask']
    assert np.take_along_axis(mask, action[:, None], -1).all()
    illegal += (mask == 0).sum()
    row, core_state = batch.step(action), output.core_state
  assert illegal > 1000


@pytest.mark.parametrize('mask', [(TWO, THREE), np.concatenate([TWO, THREE])])
def test_the_mask_of_several_actions_follows_them_and_a_row_without_one_has_all_legal(mask):
  batch = _batch(lambda: TwoActions(mask))
  assert batch.observation_spec().keys() == {'observation', 'action_mask'}
  seen = [batch.reset(), *(batch.step(np.zeros((2, 2), np.int32)) for _ in range(2))]
  expected = [[1, 0, 0, 1, 1], [1] * 5, [1, 0, 0, 1, 1]]
  for row, wanted in zip(seen, expected, strict=True):
    np.testing.assert_array_equal(row.observation['action_mask'], [wanted] * 2)


@pytest.mark.parametrize(
  'task, words',
  [
    ('Pendulum-v1', 'the actions are Box.* which have no action_mask: leave'),
    ('CartPole-v1', r'no action_mask in the info of reset\(\): leave'),
    ('FrozenLake-v1', r'no action_mask in the info of reset\(\): leave'),
  ],
)
def test_environments_without_a_mask_are_rejected_in_one_sentence(task, words):
  with pytest.raises(ValueError, match=f'^--env.*{words} --env_options=action_mask out'):
    registry.make(f'gymnasium:{task}', 1, 0, 'action_mask=true')


def test_a_mask_that_does_not_fit_or_is_there_already_is_rejected():
  with pytest.raises(
    ValueError, match=r'the action_mask in info is \[2\], but there are 5 actions'
  ):
    _batch(lambda: TwoActions(TWO))
  shown = spaces.Dict({'x': spaces.Box(0, 1, (2,)), 'action_mask': spaces.MultiBinary(5)})
  with pytest.raises(ValueError, match='observations have an action_mask already'):
    _batch(lambda: TwoActions(TWO, shown))
