"""What a learner takes from the parameters of another run, and what stays new."""

import dm_env.specs
import jax
import numpy as np
import pytest

from agents.bc.agent import BC
from agents.bc.config import BCConfig
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.qt_opt.agent import QTOpt
from agents.qt_opt.config import QTOptConfig
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.sac.agent import SAC
from agents.sac.config import SACConfig
from environments.catch import Catch
from nodes.learning import serialisation, warm_start
from rundir import checkpoints, saved_params
from rundir.errors import NonRetryableError

SPEC = Catch(1, 0).spec()
NORMALIZED = {'normalize_observations': True, 'normalize_rewards': True}
AGENTS = {
  'ppo': (PPO, PPOConfig(mlp_sizes=(4,), core='lstm', core_size=2, **NORMALIZED)),
  'r2d2': (R2D2, R2D2Config(mlp_sizes=(4,), core_size=2, head_size=3)),
  'qt_opt': (QTOpt, QTOptConfig(mlp_sizes=(4,), head_size=3)),
  'sac': (SAC, SACConfig(head_sizes=(3,))),
  'muzero': (MuZero, MuZeroConfig(mlp_sizes=(4,), hidden_state_size=3, head_size=3)),
}


def _agent(name):
  agent, config = AGENTS[name]
  box = dm_env.specs.BoundedArray((2,), np.float32, -1, 1)
  actions = box if name in ('qt_opt', 'sac') else SPEC.actions
  return agent(config, SPEC.observations, actions)


def _state(name, number):
  """Returns a new state whose numbers are all `number`, except for keys."""
  shapes = jax.eval_shape(_agent(name).init, jax.random.key(0))
  return jax.tree.map(lambda x: np.full(x.shape, number, x.dtype), shapes)


def _saved(state, run_dir, learner_steps=7, whole=None):
  """Returns the parameters of a checkpoint with a state, as launch.py cuts them out."""
  counts = {'learner_steps': learner_steps}
  content = serialisation.serialise(whole or state)
  checkpoints.write(checkpoints.directory(str(run_dir)), counts, content, keep=1)
  return saved_params.read(str(run_dir))


@pytest.mark.parametrize('name', AGENTS)
def test_parameters_and_their_copies_are_the_other_runs_and_the_rest_is_new(tmp_path, name):
  theirs, ours = _state(name, 2), _state(name, 1)
  saved_params.write_initial(str(tmp_path), _saved(theirs, tmp_path / 'other'))
  assert saved_params.has_initial(str(tmp_path))
  state = warm_start.with_initial_params(_agent(name), ours, str(tmp_path))
  weights = theirs.params.network if name == 'muzero' else theirs.params
  taken = {'params': theirs.params, 'target_params': weights}
  if name == 'qt_opt':
    taken |= {'online': theirs.params.average, 'pending': theirs.params.average}
  if name == 'sac':
    taken |= {'target_critics': theirs.params.critics}
  if name == 'muzero':
    taken['params'] = theirs.params._replace(temperature=ours.params.temperature)
  if name == 'ppo':
    assert state.params['observation_statistics']['count'] == 2
  for field, value in state._asdict().items():
    jax.tree.map(np.testing.assert_array_equal, value, taken.get(field, getattr(ours, field)))


def test_ppo_begins_as_a_clone_whose_returns_nobody_has_counted(tmp_path):
  shared = {'mlp_sizes': (4,), 'normalize_observations': True}
  clone = BC(BCConfig(**shared), SPEC.observations, SPEC.actions)
  ppo = PPO(PPOConfig(**shared, normalize_rewards=True), SPEC.observations, SPEC.actions)
  theirs, ours = (
    jax.tree.map(
      lambda x, n=number: np.full(x.shape, n, x.dtype), jax.eval_shape(a.init, jax.random.key(0))
    )
    for a, number in ((clone, 2), (ppo, 1))
  )
  saved_params.write_initial(str(tmp_path), _saved(theirs, tmp_path / 'other'))
  params = warm_start.with_initial_params(ppo, ours, str(tmp_path)).params
  assert params.keys() == ours.params.keys()
  for name, value in params.items():
    expected = ours.params[name] if name == 'return_statistics' else theirs.params[name]
    jax.tree.map(np.testing.assert_array_equal, value, expected)


def test_the_parameters_in_a_checkpoint_are_its_bytes(tmp_path):
  state = _state('ppo', 3)
  content = serialisation.serialise(state.params)
  assert _saved(state, tmp_path).content == content
  # Anakin's has the environments as well.
  whole = {'learner': state, 'streams': np.ones(3)}
  saved = _saved(state, tmp_path / 'anakin', whole=whole)
  assert (saved.content, saved.counts['learner_steps']) == (content, 7)


def test_parameters_that_do_not_fit_are_named(tmp_path):
  saved = _saved(_state('ppo', 1), tmp_path)
  other = _state('r2d2', 1).params
  with pytest.raises(NonRetryableError) as raised:
    serialisation.params(saved, other, 'change it.')
  assert str(raised.value) == (
    f'{saved.path} has float32[] for observation_statistics/count, but this agent expects nothing: '
    'change it.'
  )
  narrower = dict(_state('ppo', 1).params)
  narrower['params'] = narrower['params'] | {'torso': {}}
  with pytest.raises(NonRetryableError, match=r'float32\[4\] for params/torso/Dense_0/bias'):
    serialisation.params(saved, narrower)
