"""V-trace as an `Agent`: discrete or continuous actions, a queue as replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents.agent import ActOutput, Agent, UpdateOutput
from agents.metrics import policy_lag
from agents.networks.recurrent import RecurrentNetwork
from agents.optimizers import make_optimizer, make_schedule
from agents.types import Array, Nest, Timestep, Unroll
from agents.vtrace.config import VTraceConfig
from agents.vtrace.distributions import make_distribution
from agents.vtrace.head import PolicyValueHead
from agents.vtrace.loss import vtrace_loss


class VTraceState(NamedTuple):
  """The learner state of V-trace."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class VTrace(Agent):
  """V-trace actor-critic (Espeholt et al. 2018, "IMPALA").

  The constructor starts no JAX backend. An update reduces over the whole batch, so under `jax.jit` the
  result is the same on one device and sharded over many.

  Attributes:
    network: the network; it outputs `PolicyValue`s.
    distribution: the policy's distribution, with the logits as parameters.

  Raises:
    ValueError: the config is unusable, or the actions are neither discrete nor bounded.
  """

  evaluation_exploration = 0.0

  def __init__(
    self,
    config: VTraceConfig,
    observation_spec: dm_env.specs.Array,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    self.unroll_rows = config.unroll_length + 1
    self.unroll_period = config.unroll_length
    self.distribution = make_distribution(action_spec)
    head = PolicyValueHead(self.distribution.num_logits)
    self.network = RecurrentNetwork(config, observation_spec, action_spec, head)
    self._config = config
    self._optimizer = make_optimizer(config)
    self._schedule = make_schedule(config)

  def init(self, key: Array) -> VTraceState:
    """Returns a new learner state."""
    params = self.network.init(key)
    return VTraceState(params, self._optimizer.init(params), jnp.zeros((), jnp.int32))

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode; `{}` without LSTM or frame stack."""
    return self.network.initial_core_state(batch_size)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones: training environments sample from the policy. 0 would select its mode."""
    return np.ones((num_environments,), np.float32)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Samples an action where exploration is above 0; takes the policy's mode elsewhere.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions `[B, ...]`, the next core state, and the extras `behaviour_logits`, float32 `[B, P]`, and,
      for continuous actions, `draw`, float32 `[B, A]`.
    """
    output, core_state = self.network.step(params, core_state, timestep)
    sampled = jax.vmap(self.distribution.sample)(keys, output.logits)
    mode = self.distribution.mode(output.logits)
    explores = (exploration > 0.0).reshape(-1, *[1] * (mode.ndim - 1))
    draw = jnp.where(explores, sampled, mode)
    action = self.distribution.action(draw)
    extras = {'behaviour_logits': output.logits}
    if self.distribution.has_draws:
      extras['draw'] = draw
    return ActOutput(action, extras, self.network.record_action(core_state, action))

  def update(
    self, state: VTraceState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`.
      probabilities: ignored; a queue does not sample.

    Returns:
      The next state, no priorities, and the metrics of `vtrace_loss` with `grad_norm` (before
      clipping), `learning_rate`, and `policy_lag_mean` and `policy_lag_max`, in learner steps.
    """
    del probabilities
    timestep, action, extras = jax.tree.map(
      lambda x: jnp.swapaxes(x, 0, 1), (unrolls.timestep, unrolls.action, unrolls.extras)
    )
    draw = extras['draw'] if self.distribution.has_draws else action

    def loss_fn(params: Nest) -> tuple[Array, dict[str, Array]]:
      output, _ = self.network.unroll(params, unrolls.core_state, timestep, action)
      return vtrace_loss(
        self._config, self.distribution, output, extras['behaviour_logits'], draw, timestep
      )

    gradients, metrics = jax.grad(loss_fn, has_aux=True)(state.params)
    updates, opt_state = self._optimizer.update(gradients, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    metrics = {
      **metrics,
      'grad_norm': optax.tree.norm(gradients),
      'learning_rate': jnp.asarray(self._schedule(state.learner_steps), jnp.float32),
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    state = VTraceState(params, opt_state, state.learner_steps + 1)
    return UpdateOutput(state, None, metrics)
