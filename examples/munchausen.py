"""An agent: Munchausen R2D2 (Vieillard et al. 2020), whose rewards include the log-policy."""

import dataclasses

import jax
import jax.numpy as jnp

from agents.options import option
from agents.q_learning.values import select
from agents.r2d2.agent import R2D2
from agents.returns import n_step_returns
from agents.value_rescaling import h, h_inverse


class Munchausen(R2D2):
  @dataclasses.dataclass(frozen=True)
  class Config(R2D2.Config):
    temperature: float = option(0.03, 'tau of the softmax policy, in units of return', above=0)
    munchausen: float = option(0.9, 'alpha, weight of the log-policy in rewards', at_least=0)
    lowest_log_policy: float = option(-1.0, 'clip of tau log pi, in units of return', at_most=0)

  def targets(self, q_online, q_target, action, timestep, valid):
    config = self._config
    q = h_inverse(q_target, config.rescale_epsilon)
    # The soft value of a row, sum_a pi(a) (q(a) - tau log pi(a)), where pi is the softmax of q / tau.
    values = config.temperature * jax.nn.logsumexp(q / config.temperature, axis=-1)
    # tau log pi of the action taken. A reward belongs to the action of the row before it.
    log_policy = jnp.clip(select(q, action) - values, config.lowest_log_policy, 0.0)
    rewards = timestep.reward[1:] + config.munchausen * log_policy[:-1]
    discounts = config.discount * timestep.discount[1:]
    returns = n_step_returns(values, rewards, discounts, valid, config.n_step)
    return h(returns, config.rescale_epsilon)
