"""What `BatchedEnvironment` promises, for a member of every family."""

import dm_env
import numpy as np
import pytest
from acme import specs

from environments import nests, registry

FIRST, MID, LAST = (int(step_type) for step_type in dm_env.StepType)

# Name, options, steps to take. Short episodes, so that several end.
ENVIRONMENTS = [
  ('catch', '', 60),
  ('cartpole', 'max_episode_steps=12', 60),
  ('bsuite:catch/0', '', 60),
  ('bsuite:memory_len/3', '', 60),
  ('bsuite:deep_sea_stochastic/0', '', 60),
  ('gymnasium:MountainCar-v0', 'max_episode_steps=11', 60),
  ('gymnasium:Pendulum-v1', 'max_episode_steps=11', 60),
  ('gymnasium:FrozenLake-v1', '', 60),
  ('gymnasium:MountainCarContinuous-v0', 'max_episode_steps=11', 60),
  ('gymnasium:LunarLander-v3', 'max_episode_steps=11', 60),
  ('gymnasium:HalfCheetah-v5', 'max_episode_steps=11', 60),
  ('minatar:Asterix', 'max_episode_steps=20', 60),
  ('minatar:Breakout', '', 60),
  ('minatar:Freeway', 'max_episode_steps=20', 60),
  ('minatar:Seaquest', 'max_episode_steps=25', 60),
  ('minatar:SpaceInvaders', 'max_episode_steps=30', 60),
  ('dm_control:cartpole/swingup', 'time_limit=0.2', 60),
  ('dm_control:humanoid/stand', 'action_repeat=2,time_limit=0.5', 30),
  ('recall', 'delay=3,jitter=2', 60),
  ('atari:Pong', 'frame_cap=200', 300),
  ('dm_control:walker/walk', 'flatten=false,time_limit=0.2', 30),
  ('examples/corridor.py:make', 'length=4', 60),
  ('benchmarks/simulated/screens.py:make', '', 1100),
]
NUM_ENVS = 3


def random_actions(spec, num_steps, num_envs, seed=0):
  rng = np.random.default_rng(seed)
  shape = (num_steps, num_envs, *spec.shape)
  if isinstance(spec, specs.DiscreteArray):
    return rng.integers(spec.num_values, size=shape).astype(np.int32)
  return rng.uniform(spec.minimum, spec.maximum, size=shape).astype(np.float32)


def roll(name, options, seed, num_steps, num_envs=NUM_ENVS):
  """Returns the timesteps as they were returned, and copies made at that time."""
  environment = registry.make(name, num_envs, seed, options)
  actions = random_actions(environment.action_spec(), num_steps, num_envs)
  returned, copies = [], []
  for t in range(num_steps + 1):
    timestep = environment.reset() if t == 0 else environment.step(actions[t - 1])
    returned.append(timestep)
    copied = [array.copy() for array in nests.arrays_of(timestep)]
    copies.append(dm_env.TimeStep(*nests.fields_of(timestep.observation, copied)))
  environment.close()
  return returned, copies


def stack(timesteps):
  arrays = zip(*map(nests.arrays_of, timesteps), strict=True)
  stacked = [np.stack(several) for several in arrays]
  return dm_env.TimeStep(*nests.fields_of(timesteps[0].observation, stacked))


def pairs(rows, others):
  """Yields the arrays of two stacks of timesteps side by side."""
  yield from zip(nests.arrays_of(rows), nests.arrays_of(others), strict=True)


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'options', 'num_steps'), ENVIRONMENTS)
def test_batched_environment_contract(name, options, num_steps):
  spec = registry.make_spec(name, options)
  returned, copies = roll(name, options, seed=1, num_steps=num_steps)
  for timestep in returned:
    assert timestep.step_type.dtype == np.uint8
    assert timestep.reward.dtype == np.float32
    assert timestep.discount.dtype == np.float32
    nests.check(timestep.observation, 'it')
    declared = nests.named(spec.observations, '')
    observed = nests.named(timestep.observation, '')
    assert observed.keys() == declared.keys()
    for name, leaf in observed.items():
      assert leaf.dtype == declared[name].dtype
      assert leaf.shape == (NUM_ENVS, *declared[name].shape)
      assert leaf.flags.c_contiguous
      declared[name].validate(leaf[0])
    assert timestep.step_type.shape == timestep.reward.shape == timestep.discount.shape
    assert timestep.reward.shape == (NUM_ENVS,)

  rows = stack(copies)
  np.testing.assert_array_equal(rows.step_type[0], FIRST)
  # FIRST comes at the start and after every LAST, and nowhere else.
  assert (rows.step_type[1:] == LAST).any(axis=0).all()
  np.testing.assert_array_equal(rows.step_type[1:] == FIRST, rows.step_type[:-1] == LAST)
  first = rows.step_type == FIRST
  np.testing.assert_array_equal(rows.reward[first], 0)
  np.testing.assert_array_equal(rows.discount[first], 1)
  np.testing.assert_array_equal(rows.discount[rows.step_type == MID], 1)
  assert set(np.unique(rows.discount)) <= {0, 1}

  # What was returned is the caller's: later steps have not changed it.
  for before, now in pairs(rows, stack(returned)):
    np.testing.assert_array_equal(before, now)


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'options', 'num_steps'), ENVIRONMENTS)
def test_the_seed_decides_the_trajectory(name, options, num_steps):
  rows = stack(roll(name, options, seed=1, num_steps=num_steps)[0])
  again = stack(roll(name, options, seed=1, num_steps=num_steps)[0])
  other = stack(roll(name, options, seed=2, num_steps=num_steps)[0])
  for a, b in pairs(rows, again):
    np.testing.assert_array_equal(a, b)
  assert any((a != b).any() for a, b in pairs(rows, other))


@pytest.mark.parametrize(('name', 'options', 'num_steps'), ENVIRONMENTS)
def test_environments_of_a_batch_differ(name, options, num_steps):
  environment = registry.make(name, 2, 3, options)
  actions = random_actions(environment.action_spec(), num_steps, 1).repeat(2, axis=1)
  rows = stack([environment.reset()] + [environment.step(action) for action in actions])
  environment.close()
  assert any((array[:, 0] != array[:, 1]).any() for array in nests.arrays_of(rows))


@pytest.mark.parametrize(('name', 'options', 'num_steps'), ENVIRONMENTS)
def test_reset_in_the_middle_of_an_episode_starts_all_of_them(name, options, num_steps):
  del num_steps
  environment = registry.make(name, NUM_ENVS, 4, options)
  action = random_actions(environment.action_spec(), 1, NUM_ENVS)[0]
  environment.reset()
  environment.step(action)
  timestep = environment.reset()
  np.testing.assert_array_equal(timestep.step_type, FIRST)
  np.testing.assert_array_equal(timestep.reward, 0)
  np.testing.assert_array_equal(timestep.discount, 1)
  np.testing.assert_array_equal(environment.step(action).step_type != FIRST, True)
  environment.close()


@pytest.mark.parametrize(
  ('name', 'shape', 'bounds'),
  [
    ('gymnasium:Pendulum-v1', (3,), [[-2.0], [2.0]]),
    ('gymnasium:MountainCarContinuous-v0', (2,), [[-1.0], [1.0]]),
    ('gymnasium:Hopper-v5', (11,), [[-1.0] * 3, [1.0] * 3]),
    ('dm_control:walker/walk', (24,), [[-1.0] * 6, [1.0] * 6]),
    ('dm_control:cartpole/swingup', (5,), [[-1.0], [1.0]]),
    ('dm_control:humanoid/stand', (67,), [[-1.0] * 21, [1.0] * 21]),
  ],
)
def test_continuous_specs(name, shape, bounds):
  spec = registry.make_spec(name)
  assert spec.observations.shape == shape and spec.observations.dtype == np.float32
  assert isinstance(spec.actions, specs.BoundedArray) and spec.actions.dtype == np.float32
  np.testing.assert_array_equal([spec.actions.minimum, spec.actions.maximum], bounds)


@pytest.mark.parametrize(
  ('name', 'shape', 'dtype', 'num_actions'),
  [
    ('catch', (10, 5), np.float32, 3),
    ('cartpole', (4,), np.float32, 2),
    ('bsuite:catch/0', (10, 5), np.float32, 3),
    ('bsuite:memory_len/3', (1, 3), np.float32, 2),
    ('gymnasium:MountainCar-v0', (2,), np.float32, 3),
    ('gymnasium:LunarLander-v3', (8,), np.float32, 4),
    ('minatar:Breakout', (10, 10, 4), bool, 6),
    ('recall', (4,), np.float32, 3),
    ('atari:Pong', (84, 84), np.uint8, 18),
  ],
)
def test_specs(name, shape, dtype, num_actions):
  spec = registry.make_spec(name)
  assert spec.observations.shape == shape
  assert spec.observations.dtype == dtype
  assert spec.actions == specs.DiscreteArray(num_actions, np.int32, 'action')
