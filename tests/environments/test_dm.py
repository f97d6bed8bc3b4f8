import dm_env
import numpy as np
import pytest
from acme import specs

from environments import registry
from environments.dm import DmEnvBatch


class Counter(dm_env.Environment):
  """Counts its steps from `start`; an episode is two transitions; what it shows is configurable."""

  def __init__(self, start=0, show=float, action_spec=None, last_discount=0.0, mid_discount=1.0):
    self._start = start
    self._mid_discount = mid_discount
    self._show = show
    self._action_spec = action_spec or specs.DiscreteArray(2)
    self._last_discount = last_discount
    self._count = None
    self.actions = []

  def reset(self):
    self._count = self._start
    return dm_env.restart(self._show(self._count))

  def step(self, action):
    if self._count is None:
      return self.reset()
    self.actions.append(action)
    self._count += 1
    observation = self._show(self._count)
    if self._count < self._start + 2:
      return dm_env.transition(0.5, observation, self._mid_discount)
    self._count = None
    return dm_env.TimeStep(dm_env.StepType.LAST, 0.25, self._last_discount, observation)

  def observation_spec(self):
    observation = self._show(0)
    if isinstance(observation, dict):
      return {k: specs.Array(np.shape(v), np.asarray(v).dtype) for k, v in observation.items()}
    return specs.Array(np.shape(observation), np.asarray(observation).dtype)

  def action_spec(self):
    return self._action_spec


def test_two_episodes_row_by_row():
  batch = DmEnvBatch([Counter(0), Counter(10, last_discount=1.0)])
  action = np.zeros(2, np.int32)
  rows = [batch.reset()] + [batch.step(action) for _ in range(3)]
  np.testing.assert_array_equal([row.step_type for row in rows], [[0, 0], [1, 1], [2, 2], [0, 0]])
  np.testing.assert_array_equal(
    [row.reward for row in rows], [[0, 0], [0.5] * 2, [0.25] * 2, [0, 0]]
  )
  np.testing.assert_array_equal([row.discount for row in rows], [[1, 1], [1, 1], [0, 1], [1, 1]])
  np.testing.assert_array_equal(
    [row.observation[:, 0] for row in rows], [[0, 10], [1, 11], [2, 12], [0, 10]]
  )


def test_a_scalar_becomes_a_vector_of_one_and_float64_becomes_float32():
  batch = DmEnvBatch([Counter(show=float)])
  assert batch.observation_spec() == specs.Array((1,), np.float32, 'observation')
  assert batch.reset().observation.dtype == np.float32


def test_an_image_keeps_its_dtype():
  batch = DmEnvBatch([Counter(show=lambda count: np.full((2, 3), count, np.uint8))])
  assert batch.observation_spec() == specs.Array((2, 3), np.uint8, 'observation')
  assert batch.reset().observation.dtype == np.uint8


def test_a_nest_is_concatenated_in_the_order_of_its_keys():
  def show(count):
    return {'b': np.array([[1, 2], [3, 4]], np.int32), 'a': np.float64(count)}

  batch = DmEnvBatch([Counter(7, show)])
  assert batch.observation_spec() == specs.Array((5,), np.float32, 'observation')
  np.testing.assert_array_equal(batch.reset().observation, [[7, 1, 2, 3, 4]])


@pytest.mark.parametrize(
  'image', [np.zeros((4, 5), np.uint8), np.zeros((3, 3, 2), bool), np.zeros((3, 3, 1), np.float32)]
)
def test_a_nest_with_an_image_is_flattened_only_where_that_is_asked_for(image):
  def show(count):
    return {'image': image, 'a': np.float64(count)}

  batch = DmEnvBatch([Counter(7, show)])
  assert batch.observation_spec()['image'] == specs.Array(image.shape, image.dtype)
  assert batch.observation_spec()['a'].shape == ()
  assert DmEnvBatch([Counter(7, show)], flatten=True).observation_spec().shape == (image.size + 1,)


def _show_with_mask(count):
  return {
    'b': np.full((2, 2), count, np.uint8),
    'a': np.float64(count),
    'action_mask': [True, False],
  }


def test_a_nest_stays_one_if_it_is_not_to_be_flattened():
  batch = DmEnvBatch([Counter(7, _show_with_mask), Counter(9, _show_with_mask)], flatten=False)
  found = {name: (spec.shape, spec.dtype) for name, spec in batch.observation_spec().items()}
  assert found == {'b': ((2, 2), np.uint8), 'a': ((), np.float32), 'action_mask': ((2,), bool)}
  observation = batch.reset().observation
  assert {name: (x.shape[1:], x.dtype) for name, x in observation.items()} == found
  np.testing.assert_array_equal(observation['b'][:, 1, 0], [7, 9])
  np.testing.assert_array_equal(observation['a'], [7, 9])
  observation = batch.step(np.zeros(2, np.int32)).observation
  np.testing.assert_array_equal(observation['a'], [8, 10])


def test_an_action_mask_stays_beside_the_vector_of_the_rest():
  batch = DmEnvBatch([Counter(7, _show_with_mask)], flatten=True)
  assert batch.observation_spec() == {
    'observation': specs.Array((5,), np.float32, 'observation'),
    'action_mask': specs.Array((2,), bool),
  }
  observation = batch.reset().observation
  np.testing.assert_array_equal(observation['observation'], [[7] * 5])
  np.testing.assert_array_equal(observation['action_mask'], [[True, False]])


def test_a_vector_of_bounded_integers_is_several_discrete_actions():
  counter = Counter(action_spec=specs.BoundedArray((2,), np.int64, 0, [2, 4]))
  batch = DmEnvBatch([counter])
  assert batch.action_spec() == specs.BoundedArray((2,), np.int32, 0, [2, 4], 'action')
  batch.reset()
  batch.step(np.array([[1, 3]], np.int32))
  np.testing.assert_array_equal(counter.actions, [[1, 3]])


def test_bounded_integers_from_zero_are_discrete():
  spec = specs.BoundedArray((), np.int64, 0, 4)
  counter = Counter(action_spec=spec)
  batch = DmEnvBatch([counter])
  assert batch.action_spec() == specs.DiscreteArray(5, np.int32, 'action')
  batch.reset()
  batch.step(np.array([3], np.int32))
  assert counter.actions == [3]


@pytest.mark.parametrize(
  'spec',
  [
    specs.DiscreteArray(2, np.int32),
    specs.BoundedArray((), np.int64, 0, 1),
    specs.BoundedArray((2,), np.int64, 0, 1),
    specs.BoundedArray((2,), np.float64, 0, 1),
  ],
)
def test_actions_arrive_in_the_dtype_of_the_environments_own_spec(spec):
  environment = Counter(action_spec=spec)
  batch = DmEnvBatch([environment])
  batch.reset()
  batch.step(np.ones((1, *spec.shape), batch.action_spec().dtype))
  (action,) = environment.actions
  spec.validate(action)


def test_bounded_floats_become_float32():
  spec = specs.BoundedArray((2,), np.float64, -1, [1, 2])
  batch = DmEnvBatch([Counter(action_spec=spec)])
  expected = specs.BoundedArray((2,), np.float32, -1, [1, 2], 'action')
  assert batch.action_spec() == expected


def test_bounds_are_rounded_inwards():
  low, high = np.array([-0.1, -1.0]), np.array([0.1, 0.3])
  batch = DmEnvBatch([Counter(action_spec=specs.BoundedArray((2,), np.float64, low, high))])
  spec = batch.action_spec()
  assert (spec.minimum >= low).all() and (spec.maximum <= high).all()
  np.testing.assert_allclose((spec.minimum, spec.maximum), (low, high), rtol=1e-6)


@pytest.mark.parametrize(
  'spec', [specs.Array((2,), np.float32), specs.BoundedArray((2,), np.float32, 0, np.inf)]
)
def test_other_actions_are_rejected(spec):
  with pytest.raises(ValueError, match='neither discrete nor bounded floats'):
    DmEnvBatch([Counter(action_spec=spec)])


def test_a_repeated_action_adds_rewards_up_and_ends_with_the_episode():
  """An episode has two transitions, with rewards 0.5 and 0.25."""
  counter = Counter(last_discount=1.0)
  batch = DmEnvBatch([counter], action_repeat=3)
  assert batch.action_repeat == 3
  batch.reset()
  row = batch.step(np.array([1], np.int32))
  assert (row.step_type[0], row.reward[0], row.discount[0]) == (2, 0.75, 1.0)
  assert row.observation[0, 0] == 2 and counter.actions == [1, 1]
  row = batch.step(np.array([1], np.int32))
  assert (row.step_type[0], row.reward[0], row.observation[0, 0]) == (0, 0, 0)
  assert counter.actions == [1, 1]


@pytest.mark.parametrize(
  'mid, last, expected', [(0.5, 0.5, 0.25), (0.0, 1.0, 0.0), (0.5, 0.0, 0.0)]
)
def test_a_repeated_action_multiplies_discounts_and_leaves_rewards_as_they_are(mid, last, expected):
  batch = DmEnvBatch([Counter(mid_discount=mid, last_discount=last)], action_repeat=2)
  batch.reset()
  row = batch.step(np.array([1], np.int32))
  assert (row.step_type[0], row.reward[0], row.discount[0]) == (2, 0.75, expected)


def test_as_many_actions_as_environments():
  batch = DmEnvBatch([Counter(), Counter()])
  batch.reset()
  with pytest.raises(ValueError):
    batch.step(np.zeros(3, np.int32))


def test_bsuite_settings_come_from_the_id():
  """memory_len/<i> remembers over i + 1 steps; an episode is one transition longer."""
  environment = registry.make('bsuite:memory_len/4', 1, 0)
  environment.reset()
  lengths = 0
  last = False
  while not last:
    lengths += 1
    last = environment.step(np.zeros(1, np.int32)).step_type[0] == 2
  assert lengths == 5 + 1


def test_bsuite_environments_of_a_batch_remember_different_things():
  contexts = registry.make('bsuite:memory_len/0', 64, 0).reset().observation[:, 0, 2]
  assert set(contexts) == {-1, 1}


def test_bsuite_mappings_are_the_same_in_all_environments():
  """A bandit's reward is a function of its action, by a mapping that belongs to the task."""
  environment = registry.make('bsuite:bandit/0', 4, 0)
  for arm in range(11):
    environment.reset()
    rewards = environment.step(np.full(4, arm, np.int32)).reward
    assert len(set(rewards)) == 1
