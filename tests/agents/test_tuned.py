"""Agents whose options are arrays in the learner state."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from agents.ppo.agent import PPO
from agents.r2d2.agent import R2D2
from agents.seeding import Seed
from agents.tuned import Tuned, inherited
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.learning import serialisation
from tests.agents.recording import ACTION_SPEC, OBSERVATION_SPEC, make_unrolls
from tests.agents.small_agents import SMALL_AGENTS

AGENTS = {'vtrace': VTrace, 'ppo': PPO, 'r2d2': R2D2}
SPECS = OBSERVATION_SPEC, ACTION_SPEC
OPTIONS = [(name, option) for name in AGENTS for option in SMALL_AGENTS[name][1].tunable]


def config_of(name, **options):
  """Returns the options of a small agent; PPO's later epochs leave the clip."""
  _, config, own = SMALL_AGENTS[name]
  own = own | ({'num_epochs': 3, 'learning_rate': 0.1} if name == 'ppo' else {})
  return config(**({'unroll_length': 4, 'mlp_sizes': (8,), 'core': 'none'} | own | options))


@functools.cache
def played(name):
  """Returns a small agent, a learner state with sharp policies, and unrolls that it acted in."""
  agent = AGENTS[name](config_of(name), *SPECS)
  state = jax.device_get(jax.jit(agent.init)(jax.random.key(0)))
  return agent, state, make_unrolls(agent, state, batch_size=6)


@functools.cache
def tuned(name, names):
  """Returns the agent with some options in its learner state, and its compiled update."""
  config = config_of(name)
  agent = Tuned(AGENTS[name], config, {n: getattr(config, n) for n in names}, *SPECS)
  return agent, jax.jit(agent.update)


@functools.cache
def own_update(name, **options):
  """Returns what an agent with these options makes of the state and the unrolls of `played`."""
  _, state, unrolls = played(name)
  return jax.jit(AGENTS[name](config_of(name, **options), *SPECS).update)(state, unrolls)


def difference(one, other):
  """Returns the largest difference of two nests."""
  return max(
    float(np.max(np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)), initial=0.0))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
  )


@pytest.mark.slow
@pytest.mark.parametrize('name', AGENTS)
def test_an_agent_with_nothing_to_tune_is_the_agent_bit_for_bit(name):
  _, state, unrolls = played(name)
  agent, update = tuned(name, ())
  begun = jax.jit(agent.init)(jax.random.key(0))
  assert difference((begun.params, begun.opt_state), (state.params, state.opt_state)) == 0
  output, own = update(begun, unrolls), own_update(name)
  assert difference(agent._own(output.state), own.state) == 0
  assert output.metrics.keys() == own.metrics.keys()
  assert difference(output.metrics, own.metrics) == 0


@pytest.mark.slow
@pytest.mark.parametrize('name, option', OPTIONS)
def test_a_value_in_the_state_does_what_the_option_does_and_compiles_nothing(name, option):
  agent, update = tuned(name, SMALL_AGENTS[name][1].tunable)
  _, _, unrolls = played(name)
  state = jax.device_get(jax.jit(agent.init)(jax.random.key(0)))
  value = 0.5 * state.values[option]
  state = state._replace(values=state.values | {option: value})
  output = update(state, unrolls)
  expected = own_update(name, **{option: float(value)})
  # Both are the same up to the order in which XLA rounds.
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
    (output.state.params, output.metrics['loss']),
    (expected.state.params, expected.metrics['loss']),
  )
  assert output.metrics[option] == output.state.values[option] == value
  base = own_update(name)
  apart = difference(base.state.opt_state, expected.state.opt_state)
  apart += difference(base.state.params, expected.state.params)
  assert apart > 1e-7, 'the option does nothing here, so that the test would pass without it'
  assert update._cache_size() == 1


@pytest.mark.slow
def test_offspring_have_the_parameters_and_the_optimizer_of_the_source_and_a_count_of_their_own():
  agent, update = tuned('vtrace', ('learning_rate', 'entropy_cost'))
  _, _, unrolls = played('vtrace')
  begun = jax.jit(agent.init)(jax.random.key(0))
  source = update(update(begun, unrolls).state, unrolls).state
  own = update(begun, unrolls).state
  source, own = jax.device_get((source, own))
  child = inherited(own, source, {'learning_rate': 0.25, 'entropy_cost': 0.5})
  assert difference(child.params, source.params) == 0
  assert child.learner_steps == 1 and child.values == {'learning_rate': 0.25, 'entropy_cost': 0.5}
  counted = lambda state: 'count' in getattr(state, '_fields', ())  # noqa: E731
  adam, schedule = filter(counted, jax.tree.leaves(child.opt_state, is_leaf=counted))
  assert (adam.count, schedule.count) == (2, 1)
  assert difference(adam.mu, own.opt_state[1][0].mu) > 0
  assert jax.tree.structure(child) == jax.tree.structure(source)
  same_types = jax.tree.map(lambda a, b: a.dtype == b.dtype, child, source)
  assert all(jax.tree.leaves(same_types))


def test_a_tuned_state_is_data_and_comes_back_from_it():
  agent, _ = tuned('ppo', ('learning_rate', 'clip_ratio'))
  state = jax.device_get(jax.jit(agent.init)(Seed(1).key()))
  assert state.others.keys() == {'key'}
  back = serialisation.from_data(serialisation.to_data(state), state)
  assert jax.tree.structure(back) == jax.tree.structure(state) and difference(back, state) == 0


def test_starting_with_other_parameters_copies_them_to_the_target_network():
  agent, _ = tuned('r2d2', ('learning_rate',))
  state = jax.device_get(jax.jit(agent.init)(jax.random.key(0)))
  other = jax.tree.map(lambda x: x + 1, state.params)
  begun = agent.with_params(state, other)
  assert difference(begun.params, other) == difference(begun.others['target_params'], other) == 0
  assert begun.values == state.values


def test_a_subclass_of_an_agent_may_name_an_option_of_its_own():
  @dataclasses.dataclass(frozen=True)
  class Config(VTraceConfig):
    tunable = (*VTraceConfig.tunable, 'bonus')
    bonus: float = 1.0

  class Own(VTrace):
    def loss_of_output(self, output, rows):
      loss, metrics = super().loss_of_output(output, rows)
      return loss + self._config.bonus, metrics | {'bonus_seen': self._config.bonus}

  config = Config(unroll_length=4, mlp_sizes=(8,))
  agent = Tuned(Own, config, {'bonus': 2.0}, *SPECS)
  _, _, unrolls = played('vtrace')
  state = jax.jit(agent.init)(jax.random.key(0))
  update = jax.jit(agent.update)
  assert update(state, unrolls).metrics['bonus_seen'] == 2
  state = state._replace(values={'bonus': np.float32(3)})
  assert update(state, unrolls).metrics['bonus_seen'] == 3
