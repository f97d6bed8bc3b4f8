"""Observations of dm_env environments against their specs."""

import dm_env
import numpy as np
import pytest
from acme import specs

from environments.dm import DmEnvBatch


class Shows(dm_env.Environment):
  """Declares a spec, and shows an observation after a first one."""

  def __init__(self, spec, first, observation):
    self._spec, self._first, self._observation = spec, first, observation

  def reset(self):
    return dm_env.restart(self._first)

  def step(self, action):
    return dm_env.transition(0.0, self._observation)

  def observation_spec(self):
    return self._spec

  def action_spec(self):
    return specs.DiscreteArray(2)


VECTOR = specs.Array((3,), np.float32)
IMAGE = specs.Array((2, 3), np.uint8)
PIXELS = np.zeros((2, 3), np.uint8)
# Flattened, and a nest for its image.
POSE, VIEW = {'x': VECTOR, 'y': specs.Array((2,), int)}, {'x': VECTOR, 'view': (IMAGE,)}


@pytest.mark.parametrize(
  'spec, first, shown, said',
  [
    (VECTOR, np.zeros(3), np.zeros(4), 'observation is float64 [4], but declared as float32 [3]'),
    # NumPy would spread these over the whole observation.
    (VECTOR, np.zeros(3), np.zeros(1), 'observation is float64 [1], but declared as float32 [3]'),
    (VECTOR, np.zeros(3), 0.5, 'observation is float64 [], but declared as float32 [3]'),
    # And cut the fractions off here.
    (IMAGE, PIXELS, PIXELS / 2, 'observation is float64 [2, 3], but declared as uint8 [2, 3]'),
    (VECTOR, np.zeros(3), {'x': 1}, 'observation is a dict, but declared as float32 [3]'),
    (VECTOR, np.zeros(3), None, 'observation is a NoneType, but declared as float32 [3]'),
    (VECTOR, np.zeros(3), [[1], [1, 2], 3], 'observation is no array, but declared as float32 [3]'),
    (
      POSE,
      {'x': np.zeros(3), 'y': np.zeros(2, int)},
      {'x': np.zeros(2), 'y': np.zeros(3, int)},
      'observation/x is float64 [2], but declared as float32 [3]',
    ),
    (
      POSE,
      {'x': np.zeros(3), 'y': np.zeros(2, int)},
      {'x': np.zeros(3)},
      'observation/y is missing, but declared as int64 [2]',
    ),
    (
      VIEW,
      {'x': np.zeros(3), 'view': (PIXELS,)},
      {'x': np.zeros(3), 'view': (PIXELS.T,)},
      'observation/view/0 is uint8 [3, 2], but declared as uint8 [2, 3]',
    ),
  ],
)
def test_an_observation_that_does_not_fit_its_spec_is_named(spec, first, shown, said):
  batch = DmEnvBatch([Shows(spec, first, shown)] * 2)
  batch.reset()
  with pytest.raises(ValueError) as error:
    batch.step(np.zeros(2, np.int32))
  assert f'the {said} (step() of Shows, at line ' in str(error.value)
  assert __file__ in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
  'spec, shown',
  [
    (VECTOR, np.zeros(3, np.float64)),
    (VECTOR, np.ones(3, int)),
    (VECTOR, [1, 2, 3]),
    (specs.Array((), np.float32), 0.5),
    (specs.Array((), np.float32), np.zeros(1)),
    (specs.Array((1,), np.float32), 0.5),
    (IMAGE, np.ones((2, 3), int)),
    (IMAGE, np.ones((2, 3), bool)),
    (POSE, {'x': np.zeros(3), 'y': [1, 2], 'others': 'ignored'}),
    (VIEW, {'x': [0.0] * 3, 'view': [PIXELS]}),
  ],
)
def test_other_dtypes_of_the_same_kind_fit(spec, shown):
  batch = DmEnvBatch([Shows(spec, shown, shown)] * 2)
  for _ in range(2):
    batch.reset()
    batch.step(np.zeros(2, np.int32))
