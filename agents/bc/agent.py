"""Behaviour cloning as an `Agent`: discrete or continuous actions, from recorded transitions."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import optax

from agents import masked
from agents.actor_critic.agent import PolicyAgent
from agents.actor_critic.distributions import Gaussian
from agents.actor_critic.head import PolicyValue
from agents.agent import UpdateOutput
from agents.bc.config import BCConfig
from agents.types import Array, Nest, Timestep, Unroll


class BCState(NamedTuple):
  """The learner state of behaviour cloning."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.


class BC(PolicyAgent):
  """Behaviour cloning (Pomerleau 1989): the loss is -log pi(a|s) of the recorded actions.

  An unroll is one transition, whoever recorded it. Its reward is not used, and the value is not trained:
  it is there for V-trace and PPO, which can begin with these parameters. Continuous actions are learned
  as draws of the policy, whose density differs from that of the actions by a factor that no parameter
  changes.

  An update reduces over the whole batch, so under `jax.jit` the result is the same on one device and
  sharded over many. See the base class for acting.
  """

  Config: ClassVar[type] = BCConfig
  unroll_rows = 2
  unroll_period = 1

  def __init__(
    self,
    config: BCConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    super().__init__(config, observation_spec, action_spec)

  def init(self, key: Array) -> BCState:
    """Returns a new learner state."""
    return BCState(*self._init_params(key), jnp.zeros((), jnp.int32))

  def policy(
    self, params: Nest, output: PolicyValue, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Acts as the base class does; the rows store no extras, since recordings of others have none."""
    action, _ = super().policy(params, output, timestep, exploration, keys)
    return action, {}

  def targets(self, action: Array) -> Array:
    """Returns what the policy learns to draw, `[B, ...]`, for recorded actions `[B, ...]`."""
    return self.distribution.draw(action)

  def forward(self, params: Nest, unrolls: Unroll, row: int = 0) -> PolicyValue:
    """Runs the network over one row of each unroll.

    Args:
      params: weights and, where observations are normalised, their statistics.
      unrolls: fields are `[B, 2, ...]`.
      row: 0 or 1.

    Returns:
      Logits `[B, P]` and values `[B]`.
    """
    timestep = jax.tree.map(lambda x: x[:, row], unrolls.timestep)
    output, _ = self.network.step(params, unrolls.core_state, timestep)
    return output

  def loss(self, params: Nest, unrolls: Unroll) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of a batch, float32 `[]`, and metrics.

    Args:
      params: weights and statistics.
      unrolls: fields are `[B, 2, ...]`.
    """
    return self.loss_of_output(self.forward(params, unrolls), unrolls)

  def loss_of_output(self, output: PolicyValue, unrolls: Unroll) -> tuple[Array, dict[str, Array]]:
    """Returns the loss as `loss` does, from logits `[B, P]`. A further term is added here."""
    valid = masked.transitions(unrolls.timestep.step_type[:, 0])
    draw = masked.kept(self.targets(unrolls.action[:, 0]), valid)
    log_prob = self.distribution.log_prob(output.logits, draw)
    loss = -masked.mean(log_prob, valid)
    mode, entropy = self.distribution.mode(output.logits), self.distribution.entropy(output.logits)
    # What the policy does without exploration, against what was done.
    if isinstance(self.distribution, Gaussian):
      done, wanted = (jnp.clip(self.distribution.squash(x), -1.0, 1.0) for x in (mode, draw))
      squared = jnp.square(done - wanted)
      match = {'action_error': jnp.sqrt(masked.mean(jnp.mean(squared, -1), valid))}
    else:
      same = (mode == draw).reshape(*valid.shape, -1).all(-1)
      match = {'accuracy': masked.mean(same.astype(jnp.float32), valid)}
    metrics = {'loss': loss, 'entropy': masked.mean(entropy, valid), **match}
    return loss, jax.lax.stop_gradient(metrics)

  def update(
    self, state: BCState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, 2, ...]`; no extras are used.
      probabilities: ignored; replay samples uniformly.

    Returns:
      The next state, no priorities, and the metrics of `loss` with `grad_norm` (before clipping) and
      `learning_rate`.
    """
    del probabilities
    params, opt_state, metrics = self._gradient_step(self.loss, state, unrolls, discount=1.0)
    return UpdateOutput(BCState(params, opt_state, state.learner_steps + 1), None, metrics)
