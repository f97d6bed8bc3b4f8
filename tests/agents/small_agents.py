"""Small agents that learn from unrolls, for tests of what all of them do."""

import functools

import jax

from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.pqn.agent import PQN
from agents.pqn.config import PQNConfig
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.recording import ACTION_SPEC, make_unrolls

_SMALL = {'unroll_length': 4, 'mlp_sizes': (8,), 'hidden_size': 8, 'core_size': 4}
SMALL_AGENTS = {
  'vtrace': (VTrace, VTraceConfig, {}),
  'ppo': (PPO, PPOConfig, {'num_epochs': 1, 'num_minibatches': 1}),
  'pqn': (PQN, PQNConfig, {'num_epochs': 1, 'num_minibatches': 1}),
  'r2d2': (R2D2, R2D2Config, {'burn_in': 2, 'n_step': 2, 'head_size': 8, 'priority_floor': 1e-6}),
}


def make_agent(name, observation_spec, action_spec=ACTION_SPEC, **options):
  """Returns a small agent."""
  agent, config, own = SMALL_AGENTS[name]
  return agent(config(**(_SMALL | own | options)), observation_spec, action_spec)


@functools.lru_cache(maxsize=16)
def recorded(make, show):
  """Returns an agent, its learner state, unrolls that it acted in, and its update of them.

  Args:
    make: makes the agent.
    show: as in `make_unrolls`.
  """
  agent = make()
  state = jax.jit(agent.init)(jax.random.key(0))
  unrolls = make_unrolls(agent, state, batch_size=6, show=show)
  return agent, state, unrolls, jax.jit(agent.update)(state, unrolls)
