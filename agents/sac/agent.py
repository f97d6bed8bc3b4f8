"""SAC as an `Agent`: continuous actions, uniform replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import masked, shapes
from agents.actor_critic.distributions import SquashedGaussian
from agents.agent import UpdateOutput
from agents.axes import swapped
from agents.boxes import Box
from agents.metrics import policy_lag
from agents.network_agent import NetworkAgent
from agents.networks.recurrent import IdentityHead, RecurrentNetwork
from agents.optimizers import Optimizer
from agents.sac.config import SACConfig
from agents.sac.heads import Critics, PolicyHead
from agents.spaces import check_actions
from agents.types import Array, Nest, Timestep, Unroll


class Params(NamedTuple):
  """What gradients train; `act` takes all of it and uses the policy."""

  policy: Nest  # The weights of a torso and of `PolicyHead`.
  critics: Nest  # The weights of a torso and of `Critics`.
  log_temperature: Array  # float32 `[]`.


class SACState(NamedTuple):
  """The learner state of SAC."""

  params: Params
  target_critics: Nest  # The Polyak average of `params.critics`.
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.
  key: Array  # uint32 `[...]`, data of the PRNG key of the update's own actions; it never changes.


class SAC(NetworkAgent):
  """Soft actor-critic with a tuned temperature (Haarnoja et al. 2018b, algorithm 1).

  The policy is tanh of a Gaussian, scaled to the bounds of the actions. Log-probabilities and entropies
  are those of actions scaled to [-1, 1], so the target entropy -A means the same for any bounds. A new
  policy is wide and centred, so that runs begin without a phase of uniformly random actions.

  One gradient trains policy, critics and temperature, each by its own loss. With Adam and without
  clipping that is the paper's three optimizers.

  Unrolls start `unroll_length` rows apart, so each transition is in exactly one. An update reduces over
  the whole batch, so under `jax.jit` the result is the same on one device and sharded over many. The
  constructor starts no JAX backend.

  Attributes:
    network: maps rows to the features of states, for the policy and for the critics.
    distribution: the policy's distribution, with the logits as parameters.
    target_entropy: what the temperature holds the policy's entropy at, in nats.

  Raises:
    ValueError: the config is unusable, or actions are not continuous.
  """

  Config = SACConfig

  def __init__(
    self,
    config: SACConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    check_actions(config, action_spec)
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self.network = RecurrentNetwork(config, observation_spec, action_spec, IdentityHead())
    self.distribution = SquashedGaussian(action_spec)
    style = config.init, config.activation
    self._policy = PolicyHead(config.head_sizes, self.distribution.num_logits, *style)
    self._critics = Critics(config.head_sizes, *style)
    self._box = Box(action_spec)
    self.target_entropy = -float(self._box.num_dimensions)
    self._config = config
    self._observation_spec = observation_spec
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> SACState:
    """Returns a new learner state: temperature 1, and target critics equal to the critics."""
    *torso_keys, policy_key, critics_key, key = jax.random.split(key, 5)
    policy_torso, critics_torso = map(self.network.init, torso_keys)
    inputs = shapes.act_inputs(self, self._observation_spec, 1)
    seen, _ = jax.eval_shape(self.network.step, policy_torso, inputs.core_state, inputs.timestep)
    features, action = jnp.zeros(seen.shape), jnp.zeros((1, self._box.num_dimensions))
    params = Params(
      policy={'torso': policy_torso, 'head': self._policy.init(policy_key, features)},
      critics={'torso': critics_torso, 'head': self._critics.init(critics_key, features, action)},
      log_temperature=jnp.zeros(()),
    )
    return SACState(
      params,
      jax.tree.map(jnp.copy, params.critics),
      self._optimizer.init(params),
      jnp.int32(0),
      jax.random.key_data(key),
    )

  def with_params(self, state: SACState, params: Params) -> SACState:
    """Returns a new learner state, whose critics and target critics have the other run's parameters."""
    return state._replace(params=params, target_critics=jax.tree.map(np.copy, params.critics))

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones: training environments sample from the policy. 0 would select its mode."""
    return np.ones(num_environments, np.float32)

  def policy(
    self, params: Params, output: Array, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Samples an action where exploration is above 0; takes tanh of the mean elsewhere.

    Args:
      params: the `params` of a learner state.
      output: logits of the policy, float32 `[B, 2A]`.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions float32 `[B, ...]` within the bounds of the spec, and no extras.
    """
    del params, timestep
    sampled = jax.vmap(self.distribution.sample)(keys, output)
    draw = jnp.where(exploration[:, None] > 0.0, sampled, self.distribution.mode(output))
    return self.distribution.action(draw), {}

  def targets(self, params: Params, target_critics: Nest, unrolls: Unroll, keys: Array) -> Array:
    """Returns what the critics learn, r + gamma d (min_i Q'_i(s', a') - alpha log pi(a'|s')).

    Q'_i are the target critics, and a' is a new action of the policy.
    A termination, d = 0, bootstraps nothing. A truncation, d = 1, bootstraps from its LAST row.

    Args:
      params: the `params` of a learner state.
      target_critics: of the same learner state.
      unrolls: fields are `[B, L, ...]`.
      keys: `[B]` typed PRNG keys.

    Returns:
      float32 `[B, L-1]`: entry t is of the transition from row t to row t+1, without meaning where row t
      is LAST.
    """
    action, log_prob = self._sample(params, unrolls, slice(1, None), keys)
    q = jnp.min(self._q_values(target_critics, unrolls, slice(1, None), action), axis=-1)
    values = q - jnp.exp(params.log_temperature) * log_prob
    reward, discount = unrolls.timestep.reward[:, 1:], unrolls.timestep.discount[:, 1:]
    return reward + self._config.discount * discount * values

  def loss(
    self, params: Params, unrolls: Unroll, targets: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Returns the sum of the losses of critics, policy and temperature, and metrics.

    They are equations 5, 7 and 18 of the paper, means over valid transitions: of
    (Q_i(s, a) - target)^2 / 2, added over both critics; of alpha log pi(a'|s) - min_i Q_i(s, a') for new
    actions a' of the policy; and of -alpha (log pi(a'|s) + target entropy).

    Args:
      params: what to train.
      unrolls: fields are `[B, L, ...]`.
      targets: float32 `[B, L-1]`, of `targets`.
      keys: `[B]` typed PRNG keys.
    """
    rows = slice(None, -1)
    valid = masked.transitions(unrolls.timestep.step_type[:, rows])
    action, target = (masked.kept(x, valid) for x in (unrolls.action[:, rows], targets))
    target = jax.lax.stop_gradient(target)
    q = self._q_values(params.critics, unrolls, rows, self._box.fraction(action))
    errors = q - target[..., None]
    critic_loss = masked.mean(0.5 * jnp.sum(jnp.square(errors), axis=-1), valid)
    # The policy follows the gradient of Q by its action and leaves the critics as they are. The
    # temperature is a constant to the policy, and the policy to the temperature.
    new_action, log_prob = self._sample(params, unrolls, rows, keys)
    critics = jax.lax.stop_gradient(params.critics)
    new_q = jnp.min(self._q_values(critics, unrolls, rows, new_action), axis=-1)
    temperature = jnp.exp(params.log_temperature)
    policy_loss = masked.mean(jax.lax.stop_gradient(temperature) * log_prob - new_q, valid)
    surplus = jax.lax.stop_gradient(-log_prob - self.target_entropy)
    temperature_loss = masked.mean(temperature * surplus, valid)
    loss = critic_loss + policy_loss + temperature_loss
    metrics = {
      'loss': loss,
      'critic_loss': critic_loss,
      'policy_loss': policy_loss,
      'temperature': temperature,
      'entropy': -masked.mean(log_prob, valid),
      'q_value': masked.mean(jnp.mean(q, axis=-1), valid),
      'target_value': masked.mean(target, valid),
      'td_error': masked.mean(jnp.mean(jnp.abs(errors), axis=-1), valid),
    }
    return loss, jax.lax.stop_gradient(metrics)

  def update(
    self, state: SACState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step, then moves the target critics.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, L, ...]`.
      probabilities: ignored; replay samples uniformly.

    Returns:
      The next state, no priorities, and metrics: those of `loss`, `grad_norm` (before clipping),
      `learning_rate`, and `policy_lag_mean` and `policy_lag_max`, in learner steps.
    """
    del probabilities
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.learner_steps)
    batch_size = unrolls.environment_id.shape[0]
    for_targets, for_loss = (jax.random.split(k, batch_size) for k in jax.random.split(key))
    targets = self.targets(state.params, state.target_critics, unrolls, for_targets)
    gradients, metrics = jax.grad(self.loss, has_aux=True)(state.params, unrolls, targets, for_loss)
    params, opt_state, grad_norm = self._optimizer.step(gradients, state.opt_state, state.params)
    # In this order of operations, the average of constant parameters is exactly these.
    target_critics = jax.tree.map(
      lambda new, old: old + self._config.tau * (new - old), params.critics, state.target_critics
    )
    metrics = {
      **metrics,
      'grad_norm': grad_norm,
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    learner_steps = state.learner_steps + 1
    return UpdateOutput(
      SACState(params, target_critics, opt_state, learner_steps, state.key), None, metrics
    )

  def _output(self, params: Params, core_state: Nest, timestep: Timestep) -> tuple[Nest, Nest]:
    features, core_state = self.network.step(params.policy['torso'], core_state, timestep)
    return self._policy.apply(params.policy['head'], features), core_state

  def _features(self, torso: Nest, unrolls: Unroll, rows: slice) -> Array:
    """Returns the features of some rows, `[B, rows, F]`."""
    features, _ = self.network.unroll(
      torso, unrolls.core_state, *swapped((unrolls.timestep, unrolls.action))
    )
    return jnp.swapaxes(features, 0, 1)[:, rows]

  def _sample(
    self, params: Params, unrolls: Unroll, rows: slice, keys: Array
  ) -> tuple[Array, Array]:
    """Returns actions of the policy in some rows, `[B, rows, A]` in [-1, 1], and their log-densities."""
    features = self._features(params.policy['torso'], unrolls, rows)
    logits = self._policy.apply(params.policy['head'], features)
    draw = jax.vmap(self.distribution.sample)(keys, logits)
    return self.distribution.squash(draw), self.distribution.log_prob_of_action(logits, draw)

  def _q_values(self, critics: Nest, unrolls: Unroll, rows: slice, action: Array) -> Array:
    """Returns both critics' Q of actions `[B, rows, A]`, in [-1, 1], in some rows: `[B, rows, 2]`."""
    features = self._features(critics['torso'], unrolls, rows)
    values: Array = self._critics.apply(critics['head'], features, action)
    return values
