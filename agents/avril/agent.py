"""AVRIL as an `Agent`: discrete actions, and the reward that recorded ones suggest."""

from __future__ import annotations

from typing import Any, NamedTuple

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from agents import masked
from agents.avril.config import AVRILConfig
from agents.bc.agent import BC, BCState
from agents.networks.recurrent import RecurrentNetwork
from agents.spaces import check_actions
from agents.types import LAST, Array, Nest, Timestep, Unroll

# The entry of the parameters with those of the reward's network.
REWARD = 'reward'


class Posterior(NamedTuple):
  """Independent Gaussians, `[...]`: what is believed of the rewards of states."""

  mean: Array
  log_std: Array


class PosteriorHead(nn.Module):
  """One linear layer for mean and log of the standard deviation, which begin near those of N(0, 1)."""

  @nn.compact
  def __call__(self, features: Array) -> Posterior:
    """Maps float32 `[..., D]` to `[...]`."""
    outputs = nn.Dense(2, kernel_init=nn.initializers.orthogonal(0.01))(features)
    return Posterior(outputs[..., 0], outputs[..., 1])

  @staticmethod
  def masked(output: Posterior, legal: Array) -> Posterior:
    """Returns the outputs, which are of states, whichever actions are legal."""
    del legal
    return output


class AVRIL(BC):
  """Approximate variational reward imitation learning (Chan and van der Schaar 2021).

  The policy is a Boltzmann policy of temperature 1, so the logits of behaviour cloning are Q, and its
  loss is the first term. The second says that the reward of s is Q(s, a) - gamma Q(s', a') of the
  recorded pairs: minus its log-likelihood under the posterior N(m(s), sd(s)). The third is the
  divergence of the posterior from its prior, N(0, 1). Without the last two, an update is bitwise that
  of behaviour cloning.

  As in the paper, the pairs of an episode end at its last action: what follows that has no Q.
  """

  Config = AVRILConfig

  def __init__(
    self,
    config: AVRILConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    check_actions(config, action_spec)
    super().__init__(config, observation_spec, action_spec)  # type: ignore[arg-type]
    self._config: Any = config
    self.reward_network = RecurrentNetwork(config, observation_spec, action_spec, PosteriorHead())

  def init(self, key: Array) -> BCState:
    """Returns a new learner state, whose posterior is almost the prior."""
    key, reward_key = jax.random.split(key)
    weights = self.network.init(key) | {REWARD: self.reward_network.init(reward_key)}
    return BCState(weights, self._optimizer.init(weights), jnp.zeros((), jnp.int32))

  def reward(self, params: Nest, timestep: Timestep) -> Posterior:
    """Returns the posterior of the rewards of states, `[B]`, as rows `[B, ...]` show them."""
    posterior, _ = self.reward_network.step(params[REWARD], {}, timestep)
    return posterior

  def loss(self, params: Nest, unrolls: Unroll) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of a batch, float32 `[]`, and metrics.

    Args:
      params: weights of both networks.
      unrolls: fields are `[B, 2, ...]`.
    """
    now, following = (self.forward(params, unrolls, row) for row in (0, 1))
    loss, metrics = self.loss_of_output(now, unrolls)
    timestep, action = unrolls.timestep, unrolls.action
    valid = masked.transitions(timestep.step_type[:, 0])
    continues = valid & (timestep.step_type[:, 1] != LAST)
    # The action of a LAST row has no effect, and may be anything.
    q = _select(now.logits, masked.kept(action[:, 0], valid))
    q_after = _select(following.logits, masked.kept(action[:, 1], continues))
    suggested = q - self._config.discount * q_after
    posterior = self.reward(params, jax.tree.map(lambda x: x[:, 0], timestep))
    td = -masked.mean(_log_density(suggested, posterior), continues)
    kl = masked.mean(_divergence(posterior), valid)
    loss = loss + self._config.td_cost * td + self._config.kl_cost * kl
    metrics |= {
      'loss': loss,
      'nll': metrics['loss'],
      'td_loss': td,
      'kl': kl,
      'reward_mean': masked.mean(posterior.mean, valid),
      'reward_std': masked.mean(jnp.exp(posterior.log_std), valid),
    }
    return loss, jax.lax.stop_gradient(metrics)


def _select(q_values: Array, action: Array) -> Array:
  """Returns Q of actions `[B]`, of Q-values `[B, A]`."""
  return jnp.take_along_axis(q_values, action[:, None].astype(jnp.int32), axis=-1)[:, 0]


def _log_density(x: Array, posterior: Posterior) -> Array:
  """Returns log N(x; mean, std)."""
  scaled = (x - posterior.mean) * jnp.exp(-posterior.log_std)
  return -0.5 * jnp.square(scaled) - posterior.log_std - 0.5 * np.log(2 * np.pi)


def _divergence(posterior: Posterior) -> Array:
  """Returns KL(N(mean, std) || N(0, 1))."""
  mean, log_std = posterior
  return 0.5 * (jnp.exp(2 * log_std) + jnp.square(mean) - 1.0) - log_std
