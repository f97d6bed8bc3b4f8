"""V-trace as an `Agent`: discrete actions, experience from a queue."""

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
from agents.types import Array, Nest, Timestep, Unroll
from agents.vtrace.config import VTraceConfig
from agents.vtrace.head import PolicyValueHead
from agents.vtrace.loss import vtrace_loss
from agents.vtrace.optimizer import make_optimizer, make_schedule


class VTraceState(NamedTuple):
  """The learner state of V-trace."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class VTrace(Agent):
  """V-trace actor-critic (Espeholt et al. 2018, "IMPALA").

  Building one starts no JAX backend. An update reduces over the whole batch, so under `jax.jit` it
  is the same update whether the batch is on one device or sharded over many.

  Attributes:
    network: the network whose outputs are `PolicyValue`s.

  Raises:
    ValueError: the config is unusable, or actions are not discrete.
  """

  evaluation_exploration = 0.0

  def __init__(
    self,
    config: VTraceConfig,
    observation_spec: dm_env.specs.Array,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    if not isinstance(action_spec, dm_env.specs.DiscreteArray):
      raise ValueError(f'V-trace needs a discrete action space, not {action_spec!r}.')
    self.unroll_rows = config.unroll_length + 1
    self.unroll_period = config.unroll_length
    self.network = RecurrentNetwork(
      config, observation_spec, action_spec, PolicyValueHead(action_spec.num_values)
    )
    self._config = config
    self._optimizer = make_optimizer(config)
    self._schedule = make_schedule(config)

  def init(self, key: Array) -> VTraceState:
    """Returns a fresh learner state."""
    params = self.network.init(key)
    return VTraceState(params, self._optimizer.init(params), jnp.zeros((), jnp.int32))

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode; `{}` without LSTM and frame stack."""
    return self.network.initial_core_state(batch_size)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones: training environments sample from the policy; 0 takes its likeliest action."""
    return np.ones((num_environments,), np.float32)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Samples an action where exploration is above 0, takes the likeliest elsewhere.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions int32 `[B]`, extras `behaviour_logits` float32 `[B, A]`, and the next core state.
    """
    output, core_state = self.network.step(params, core_state, timestep)
    sampled = jax.vmap(jax.random.categorical)(keys, output.logits)
    likeliest = jnp.argmax(output.logits, axis=-1)
    action = jnp.where(exploration > 0.0, sampled, likeliest).astype(jnp.int32)
    core_state = self.network.record_action(core_state, action)
    return ActOutput(action, {'behaviour_logits': output.logits}, core_state)

  def update(
    self, state: VTraceState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`, extras has `behaviour_logits` float32 `[B, T+1, A]`.
      probabilities: ignored; V-trace samples nothing.

    Returns:
      The next state, no priorities, and the metrics of `vtrace_loss` with `grad_norm` (before
      clipping), `learning_rate`, and `policy_lag_mean` and `policy_lag_max`, in learner steps.
    """
    del probabilities
    timestep, action, behaviour_logits = jax.tree.map(
      lambda x: jnp.swapaxes(x, 0, 1),
      (unrolls.timestep, unrolls.action, unrolls.extras['behaviour_logits']),
    )

    def loss_fn(params: Nest) -> tuple[Array, dict[str, Array]]:
      output, _ = self.network.unroll(params, unrolls.core_state, timestep, action)
      return vtrace_loss(self._config, output, behaviour_logits, action, timestep)

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
