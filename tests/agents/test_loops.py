"""Networks for use within a loop."""

import functools

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.networks import torsos
from agents.networks.config import NetworkConfig
from agents.networks.loops import for_loops
from agents.networks.recurrent import IdentityHead, RecurrentNetwork
from agents.ppo.agent import PPO
from agents.tuned import Tuned
from tests.agents.recording import ACTION_SPEC, make_unrolls
from tests.agents.small_agents import SMALL_AGENTS, make_agent

SCREEN = dm_env.specs.Array((18, 18), np.uint8)


class Framed(nn.Module):
  """A user's torso with one of ours."""

  inner: nn.Module

  @nn.compact
  def __call__(self, observation):
    """Maps `[N, H, W]` to `[N, D]`."""
    return self.inner(observation)


class Sharp(PPO):
  """An agent whose network is another one than PPO has made."""

  def __init__(self, *args):
    super().__init__(*args)
    self.network = SharpNetwork(*args, self.network.body.head)


class SharpNetwork(RecurrentNetwork):
  """A network with sharper policies."""

  def unroll(self, params, core_state, timestep, action):
    """Returns the outputs with other logits."""
    output, core_state = super().unroll(params, core_state, timestep, action)
    return output._replace(logits=300.0 * output.logits), core_state


def show(observation):
  """Returns screens of the observations of `random_rows`."""
  tiled = jnp.tile(observation[..., :1, :], (1, 1, 18, 9))
  return jnp.clip(128 + 60 * tiled, 0, 255).astype(jnp.uint8)


@pytest.mark.parametrize(
  'module, inner',
  [
    (torsos.Impala(), lambda x: x),
    (torsos.Twins(torsos.Impala(), torsos.Impala()), lambda x: x.value),
    (Framed(torsos.Convolutions(torsos.SMALL, 8)), lambda x: x.inner),
  ],
)
def test_every_module_that_has_another_way_in_loops_takes_it(module, inner):
  assert not inner(module).looped
  assert inner(for_loops(module)).looped
  assert not inner(module).looped
  assert for_loops(for_loops(module)) == for_loops(module)


def test_a_network_for_loops_keeps_its_class_and_another_head():
  config = NetworkConfig(torso='small', core='none')
  network = SharpNetwork(config, SCREEN, ACTION_SPEC, IdentityHead())
  network.body = network.body.clone(head=nn.Dense(3))
  looped = network.for_loops()
  assert type(looped) is SharpNetwork
  assert looped.body.head == nn.Dense(3)
  assert looped.body.torso.looped


@functools.cache
def of_screens(name):
  """Returns an agent of screens, with options in its learner state, a state and unrolls."""
  options = {'torso': 'small', 'core': 'none'}
  config = make_agent(name, SCREEN, **options)._config
  agent = Tuned(SMALL_AGENTS[name][0], config, {'learning_rate': 0.01}, SCREEN, ACTION_SPEC)
  state = jax.jit(agent.init)(jax.random.key(0))
  return agent, state, make_unrolls(agent, state, batch_size=2, show=show)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['vtrace', 'r2d2'])
def test_a_tuned_agent_for_loops_learns_the_same_without_strided_convolutions(name):
  agent, state, unrolls = of_screens(name)
  looped = agent.for_loops()

  def strided(agent):
    text = jax.jit(agent.update).lower(state, unrolls).compile().as_text()
    return sum('convolution(' in line and 'stride=' in line for line in text.splitlines())

  assert strided(agent) > 0
  assert strided(looped) == 0
  expected = jax.jit(agent.update)(state, unrolls).state.params
  actual = jax.jit(looped.update)(state, unrolls).state.params
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), actual, expected
  )


@pytest.mark.slow
def test_ppo_learns_with_the_network_that_it_acts_with():
  config = make_agent('ppo', SCREEN, torso='small', core='none')._config
  agent = Sharp(config, SCREEN, ACTION_SPEC)
  state = jax.jit(agent.init)(jax.random.key(0))
  unrolls = make_unrolls(agent, state, batch_size=2, show=show)
  metrics = jax.jit(agent.update)(state, unrolls).metrics
  # The first gradient step begins with the policy that acted.
  assert metrics['approx_kl'] == pytest.approx(0.0, abs=1e-6)
  assert metrics['clip_fraction'] == 0.0
