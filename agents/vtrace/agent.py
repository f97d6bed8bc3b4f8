"""V-trace as an `Agent`: discrete or continuous actions, a queue as replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax.numpy as jnp
import optax

from agents.actor_critic.agent import ActorCritic, Rows
from agents.actor_critic.head import PolicyValue
from agents.agent import UpdateOutput
from agents.metrics import policy_lag
from agents.types import Array, Nest, Timestep, Unroll
from agents.vtrace.config import VTraceConfig
from agents.vtrace.loss import vtrace_loss, vtrace_targets
from agents.vtrace.targets import Targets


class VTraceState(NamedTuple):
  """The learner state of V-trace."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class VTrace(ActorCritic):
  """V-trace actor-critic (Espeholt et al. 2018, "IMPALA").

  An update reduces over the whole batch, so under `jax.jit` the result is the same on one device and
  sharded over many. See the base class for the constructor and for acting.
  """

  Config = VTraceConfig

  def __init__(
    self,
    config: VTraceConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    super().__init__(config, observation_spec, action_spec)
    self._config: VTraceConfig = config

  def init(self, key: Array) -> VTraceState:
    """Returns a new learner state."""
    return VTraceState(*self._init_params(key), jnp.zeros((), jnp.int32))

  def loss(self, params: Nest, unrolls: Unroll) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of a batch, float32 `[]`, and metrics.

    Args:
      params: weights and statistics.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
    """
    return self.loss_of_output(*self.forward(params, unrolls))

  def loss_of_output(self, output: PolicyValue, rows: Rows) -> tuple[Array, dict[str, Array]]:
    """Returns the loss as `loss` does, from what `forward` returns. A further term is added here."""
    return vtrace_loss(
      self._config,
      self.distribution,
      output,
      rows.behaviour_logits,
      rows.draw,
      rows.timestep,
      self.targets,
    )

  def targets(self, values: Array, rhos: Array, timestep: Timestep, valid: Array) -> Targets:
    """Returns V-trace targets and advantages, `[T, B]`. See the base class."""
    return vtrace_targets(self._config, values, rhos, timestep, valid)

  def update(
    self, state: VTraceState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
      probabilities: ignored; a queue does not sample.

    Returns:
      The next state, no priorities, and the metrics of `loss` with `grad_norm` (before clipping),
      `learning_rate`, and `policy_lag_mean` and `policy_lag_max`, in learner steps. With normalised
      rewards there is also `return_std`.
    """
    del probabilities
    discount = self._config.discount
    params, opt_state, metrics = self._gradient_step(self.loss, state, unrolls, discount)
    metrics |= policy_lag(state.learner_steps, unrolls.policy_version)
    return UpdateOutput(VTraceState(params, opt_state, state.learner_steps + 1), None, metrics)
