"""Environments of nests and of several actions are refused before a program starts, or accepted."""

import pytest

from programs import registry
from programs.options import configs
from tests.programs_under_test import ROOT

DOORS = f'{ROOT}/examples/doors.py:make'
TWO_ACTIONS = """
import numpy as np
from acme import specs
from environments.catch import Catch

class TwoPaddles(Catch):
  def step(self, action):
    return super().step(action[:, 0])

  def action_spec(self):
    return specs.BoundedArray((2,), np.int32, 0, 2)

def make(task, num_envs, seed):
  return TwoPaddles(num_envs, seed)
"""


@pytest.mark.parametrize('program', ['sebulba', 'impala', 'r2d2', 'muzero'])
def test_agents_with_networks_take_nests(program):
  configs.make_config(registry.load(program), {'env': DOORS})


def test_several_actions_are_for_actor_critics(tmp_path):
  file = tmp_path / 'two.py'
  file.write_text(TWO_ACTIONS)
  values = {'env': f'{file}:make'}
  configs.make_config(registry.load('sebulba'), values)
  for program in ('r2d2', 'muzero'):
    with pytest.raises(ValueError, match='has several discrete actions at once'):
      configs.make_config(registry.load(program), values)


def test_labels_and_masks_have_nothing_to_normalise(tmp_path):
  file = tmp_path / 'labels.py'
  text = (ROOT / 'examples' / 'doors.py').read_text()
  text = text.replace('Array((), float)', 'Array((), int)').replace('[-1.0, 1.0]', '[-1, 1]')
  file.write_text(text)
  values = {'env': f'{file}:make', 'normalize_observations': True}
  with pytest.raises(
    ValueError, match=r'^--normalize_observations .* have no floats: leave it out'
  ):
    configs.make_config(registry.load('sebulba'), values)
  configs.make_config(registry.load('sebulba'), values | {'env': DOORS})
