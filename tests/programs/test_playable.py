"""Every program with every agent, and environments with every kind of actions: played or refused."""

import importlib

import numpy as np
import pytest
from acme import specs

from agents.lifetimes import LifetimeObservation
from agents.turns import TurnActions
from agents.vtrace.agent import VTrace
from environments import jax_registry, registry
from programs import registry as programs
from programs.options import agent_choice, configs, offline

ACTIONS = {
  'discrete': specs.DiscreteArray(3, np.int32),
  'multi_discrete': specs.BoundedArray((2,), np.int32, 0, [1, 2]),
  'continuous': specs.BoundedArray((2,), np.float32, -1, 1),
}
NOBODYS = {
  'unbounded': specs.Array((2,), np.float32),
  'infinite': specs.BoundedArray((2,), np.float32, -np.inf, np.inf),
  'from one': specs.BoundedArray((2,), np.int32, 1, 2),
  'a matrix': specs.BoundedArray((2, 2), np.int32, 0, 2),
}
ALL = ('discrete', 'multi_discrete', 'continuous')
# By program and agent.
PLAYS = {
  ('sebulba', 'vtrace'): ALL,
  ('sebulba', 'ppo'): ALL,
  ('sebulba', 'pqn'): ('discrete',),
  ('impala', 'vtrace'): ALL,
  ('impala', 'ppo'): ALL,
  ('impala', 'pqn'): ('discrete',),
  ('gala_sebulba', 'vtrace'): ALL,
  ('r2d2', 'r2d2'): ('discrete',),
  ('muzero', 'muzero'): ('discrete',),
  ('qt_opt', 'qt_opt'): ('continuous',),
  ('evolution', 'evolution'): ALL,
  ('offline', 'bc'): ALL,
  ('offline', 'avril'): ('discrete',),
  ('offline', 'qt_opt'): ('continuous',),
  ('sac', 'sac'): ('continuous',),
  ('anakin', 'vtrace'): ALL,
  ('anakin', 'ppo'): ALL,
  ('anakin', 'pqn'): ('discrete',),
  ('anakin', 'r2d2'): ('discrete',),
  ('anakin', 'muzero'): ('discrete',),
  ('gala', 'vtrace'): ALL,
  ('population_sebulba', 'vtrace'): ALL,
  ('population_sebulba', 'ppo'): ALL,
  ('population', 'vtrace'): ALL,
  ('population', 'ppo'): ALL,
  ('population', 'r2d2'): ('discrete',),
  ('intrinsic_rewards', 'intrinsic_rewards'): ('discrete',),
}
# The one observation that all agents take.
ARRAY = LifetimeObservation(3)
of_every_agent = pytest.mark.parametrize('program, agent', PLAYS)
of_agents_with_masks = pytest.mark.parametrize(
  'program, agent', [names for names in PLAYS if names[0] != 'intrinsic_rewards']
)
of_agents_with_torsos = pytest.mark.parametrize(
  'program, agent', [names for names in PLAYS if not {'intrinsic_rewards', 'qt_opt'} & {*names}]
)


def _shown(monkeypatch, actions, observations=ARRAY):
  """Replaces every environment by one that exists only as specs."""
  rest = specs.Array((), np.float32), specs.BoundedArray((), np.float32, 0, 1)
  spec = specs.EnvironmentSpec(observations, actions, *rest)
  for environments in (registry, jax_registry):
    monkeypatch.setattr(environments, 'check', lambda *_: spec)
  monkeypatch.setattr(offline, 'check', lambda *_: None)  # What is recorded, too.


def _config(program, agent, env='catch'):
  return configs.make_config(programs.load(program), {'env': env, 'agent': agent})


def _refusal(program, agent):
  with pytest.raises(ValueError) as error:
    _config(program, agent)
  said = str(error.value)
  assert said.startswith('--env=catch') and said.endswith('.') and '\n' not in said
  return said


def _agent(program, agent):
  """Makes the agent of a program, for any environment, as its nodes do."""
  module = programs.load(program)
  config = configs.resolve(module, {'agent': agent})
  found = vars(importlib.import_module(f'agents.{agent}.agent'))
  (cls,) = (c for n, c in found.items() if n.lower() == agent.replace('_', ''))
  return lambda observations, actions: cls(config.agent, observations, actions)


def test_the_table_has_every_agent_of_every_program():
  found = {(p, a) for p in programs.PROGRAMS for a in agent_choice.variants(programs.load(p))}
  assert found == PLAYS.keys()


@pytest.mark.parametrize('kind', ACTIONS)
@of_every_agent
def test_launch_and_agent_agree_on_the_actions(monkeypatch, program, agent, kind):
  _shown(monkeypatch, ACTIONS[kind])
  make = _agent(program, agent)
  if kind in PLAYS[program, agent]:
    assert _config(program, agent).run.env == 'catch'
    make(ARRAY, ACTIONS[kind])
    return
  said = _refusal(program, agent)
  with pytest.raises(ValueError, match='another agent or environment'):
    make(ARRAY, ACTIONS[kind])
  _, _, fix = said.partition(': use ')
  flag, _, value = fix.split(',')[0].partition('=')
  other = (program, value) if flag == '--agent' else (value, 'vtrace')
  for name in other[1].split(' or '):
    assert kind in PLAYS[other[0], name]


@pytest.mark.parametrize('actions', NOBODYS.values(), ids=NOBODYS)
@of_every_agent
def test_actions_that_no_agent_takes_are_rejected_by_launch_and_agent(
  monkeypatch, program, agent, actions
):
  _shown(monkeypatch, actions)
  assert 'no agent takes: use a DiscreteArray' in _refusal(program, agent)
  with pytest.raises(ValueError, match='no agent takes'):
    _agent(program, agent)(ARRAY, actions)


@pytest.mark.parametrize(
  'size, others, words',
  [
    (4, {'x': ARRAY}, 'give it one entry for each'),
    (None, {}, 'nothing besides its action_mask: add what the agent is to see'),
    (None, {'x': ARRAY}, ''),
  ],
)
@of_agents_with_masks
def test_launch_and_agent_agree_on_the_mask(monkeypatch, program, agent, size, others, words):
  kind = PLAYS[program, agent][0]
  sizes = {'discrete': 3, 'continuous': 2}
  observations = {**others, 'action_mask': specs.Array((size or sizes[kind],), bool)}
  if kind == 'continuous':
    words = 'the actions are continuous: leave it out'
  _shown(monkeypatch, ACTIONS[kind], observations)
  make = _agent(program, agent)
  if words:
    assert words in _refusal(program, agent)
    with pytest.raises(ValueError, match=words):
      make(observations, ACTIONS[kind])
  else:
    _config(program, agent)
    make(observations, ACTIONS[kind])


MASK = specs.Array((3,), np.float32)
NORMALIZED = {
  'features': (ARRAY, ''),
  'counts': (specs.Array((3,), np.int32), ''),
  'an image': (specs.Array((3,), np.uint8), 'are uint8'),
  'counts beside a mask': ({'x': specs.Array((3,), np.int32), 'action_mask': MASK}, ''),
  'an image beside a mask': ({'x': specs.Array((3,), np.uint8), 'action_mask': MASK}, 'are uint8'),
  'flags and a mask of floats': (
    {'x': specs.Array((3,), bool), 'y': (specs.Array((), bool),), 'action_mask': MASK},
    'have no floats',
  ),
  'an image and features': ({'x': specs.Array((3,), np.uint8), 'y': (ARRAY,)}, ''),
}


@pytest.mark.parametrize('observations, words', NORMALIZED.values(), ids=NORMALIZED)
def test_launch_and_agent_agree_on_what_is_normalised(monkeypatch, observations, words):
  _shown(monkeypatch, ACTIONS['discrete'], observations)
  values = {'env': 'catch', 'normalize_observations': True}
  module = programs.load('sebulba')
  calls = (
    lambda: configs.make_config(module, values),
    lambda: VTrace(configs.resolve(module, values).agent, observations, ACTIONS['discrete']),
  )
  for call in calls:
    if words:
      with pytest.raises(ValueError, match=f'^--normalize_observations .* {words}.*: leave it out'):
        call()
    else:
      call()


@pytest.mark.parametrize('nested', [False, True])
@of_agents_with_torsos
def test_a_network_of_images_is_rejected_where_there_are_none(monkeypatch, program, agent, nested):
  module = programs.load(program)
  given = {'env': 'catch'} | ({'agent': agent} if agent else {})
  config = configs.resolve(module, given)
  option, name = ('model', 'conv') if hasattr(config.agent, 'model') else ('torso', 'nature')
  observations = {'a': ARRAY, 'b': ARRAY} if nested else ARRAY
  _shown(monkeypatch, ACTIONS[PLAYS[program, agent][0]], observations)
  with pytest.raises(ValueError, match=rf'^--{option}={name} .* use --{option}=auto\.$'):
    configs.make_config(module, given | {option: name})


def test_a_population_needs_returns_that_compare_its_members(monkeypatch):
  _shown(monkeypatch, TurnActions(3, lambda observation: observation > 0))
  assert 'against itself' in _refusal('population', 'vtrace')
  _config('anakin', 'vtrace')
