"""QT-Opt as an `Agent`: continuous actions, targets from relabellers or from the update itself."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import masked, shapes
from agents.agent import UpdateOutput
from agents.axes import swapped
from agents.boxes import Box
from agents.metrics import policy_lag
from agents.network_agent import NetworkAgent
from agents.networks.recurrent import IdentityHead, RecurrentNetwork
from agents.networks.torsos import hidden_init, output_init
from agents.optimizers import Optimizer
from agents.qt_opt import cem
from agents.qt_opt.config import QTOptConfig
from agents.spaces import check_actions
from agents.types import Array, Nest, Timestep, Unroll


class Params(NamedTuple):
  """The two target networks; `act` takes both and uses the first."""

  average: Nest  # The exponential average of the online network.
  lagged: Nest  # The average of one to two periods ago.


class QTOptState(NamedTuple):
  """The learner state of QT-Opt."""

  params: Params
  online: Nest  # The network that gradients train.
  pending: Nest  # The next `lagged`.
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.
  key: Array  # uint32 `[...]`, data of the PRNG key of the update's own targets; it never changes.


class ActionValue(nn.Module):
  """Q of features and an action, with one hidden layer."""

  hidden_size: int
  init_of: str = 'fan_in'

  @nn.compact
  def __call__(self, features: Array, action: Array) -> Array:
    """Maps float32 `[..., F]` and `[..., n]`, in [-1, 1], to `[...]`."""
    x = jnp.concatenate([features, action], axis=-1)
    x = nn.relu(nn.Dense(self.hidden_size, kernel_init=hidden_init(self.init_of))(x))
    return nn.Dense(1, kernel_init=output_init(self.init_of))(x)[..., 0]


class QTOpt(NetworkAgent):
  """QT-Opt (Kalashnikov et al. 2018): the policy is a search for the action with the highest Q.

  The target of a transition is r + gamma d V(s'), where V(s') is the smaller of the two target networks'
  Q of the action that the search finds with the first (section 4.1, clipped double Q). A relabeller, the
  paper's Bellman updater, computes it with `relabel`. An update on unrolls without it computes it first.

  Unrolls start `unroll_length` rows apart, so each transition is in exactly one. An update reduces over
  the whole batch, so under `jax.jit` the result is the same on one device and sharded over many. The
  constructor starts no JAX backend.

  Attributes:
    network: maps rows to the features of states.

  Raises:
    ValueError: the config is unusable, or actions are not continuous.
  """

  Config = QTOptConfig

  def __init__(
    self,
    config: QTOptConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    check_actions(config, action_spec)
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self.network = RecurrentNetwork(config, observation_spec, action_spec, IdentityHead())
    self._head = ActionValue(config.head_size, config.init)
    self._config = config
    self._observation_spec = observation_spec
    self._box = Box(action_spec)
    self._optimizer = Optimizer(config)

  def init(self, key: Array) -> QTOptState:
    """Returns a new learner state, whose four networks are equal."""
    torso_key, head_key, key = jax.random.split(key, 3)
    torso = self.network.init(torso_key)
    inputs = shapes.act_inputs(self, self._observation_spec, 1)
    features, _ = jax.eval_shape(self.network.step, torso, inputs.core_state, inputs.timestep)
    action = jnp.zeros((1, self._box.num_dimensions))
    head = self._head.init(head_key, jnp.zeros(features.shape, features.dtype), action)
    online = {'torso': torso, 'head': head}
    average, lagged, pending = (jax.tree.map(jnp.copy, online) for _ in range(3))
    return QTOptState(
      Params(average, lagged),
      online,
      pending,
      self._optimizer.init(online),
      jnp.int32(0),
      jax.random.key_data(key),
    )

  def with_params(self, state: QTOptState, params: Params) -> QTOptState:
    """Returns a new learner state whose networks all have the other run's averaged parameters."""
    copies = (jax.tree.map(np.copy, params.average) for _ in range(3))
    lagged, online, pending = copies
    return state._replace(params=Params(params.average, lagged), online=online, pending=pending)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns the probabilities of random actions, float32 `[num_environments]`: all `epsilon`."""
    return np.full(num_environments, self._config.epsilon, np.float32)

  def policy(
    self, params: Params, output: Array, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Acts by a search of the averaged network, or at random with probability `exploration`.

    Args:
      params: the `params` of a learner state.
      output: features of the averaged network, float32 `[B, F]`.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions float32 `[B, ...]` within the bounds of the spec, and no extras.
    """
    del timestep

    def choose(features: Array, epsilon: Array, key: Array) -> Array:
      search_key, whether_key, action_key = jax.random.split(key, 3)
      best = self._search(params.average, features, search_key)
      anything = jax.random.uniform(action_key, best.shape, minval=-1.0, maxval=1.0)
      return jnp.where(jax.random.uniform(whether_key) < epsilon, anything, best)

    return self._box.action(jax.vmap(choose)(output, exploration, keys)), {}

  def relabel(self, params: Params, unrolls: Unroll, keys: Array) -> dict[str, Array]:
    """Returns `targets` as the extra `target`."""
    return {'target': self.targets(params, unrolls, keys)}

  def targets(self, params: Params, unrolls: Unroll, keys: Array) -> Array:
    """Returns the targets of the transitions of unrolls.

    Args:
      params: the `params` of a learner state.
      unrolls: fields are `[B, L, ...]`.
      keys: `[B]` typed PRNG keys.

    Returns:
      float32 `[B, L]`: entry t is of the transition from row t to row t+1, without meaning where row t
      is LAST or the last of the unroll.
    """
    average, lagged = (self._features(network, unrolls) for network in params)

    def value(first: Array, second: Array, key: Array) -> Array:
      action = self._search(params.average, first, key)
      # A maximum over noisy Q-values is too high. The smaller of two networks takes some of that back.
      return jnp.minimum(
        self._value(params.average, first, action), self._value(params.lagged, second, action)
      )

    row_keys = jax.vmap(lambda key: jax.random.split(key, self.unroll_rows))(keys)
    values = jax.vmap(jax.vmap(value))(average, lagged, row_keys)
    reward, discount = unrolls.timestep.reward[:, 1:], unrolls.timestep.discount[:, 1:]
    targets = self._config.reward_scale * reward + self._config.discount * discount * values[:, 1:]
    return jnp.pad(targets, ((0, 0), (0, 1)))

  def loss(self, online: Nest, unrolls: Unroll, targets: Array) -> tuple[Array, dict[str, Array]]:
    """Returns the mean loss of Q over valid transitions, and metrics.

    Args:
      online: the network to train.
      unrolls: fields are `[B, L, ...]`.
      targets: float32 `[B, L]`, of `targets`, from here or from a relabeller.
    """
    features = self._features(online, unrolls)[:, :-1]
    valid = masked.transitions(unrolls.timestep.step_type[:, :-1])
    action, target = (masked.kept(x[:, :-1], valid) for x in (unrolls.action, targets))
    q = self._logits(online, features, self._box.fraction(action))
    target = jax.lax.stop_gradient(target)
    if self._config.value_loss == 'squared':
      value, losses = q, 0.5 * jnp.square(q - target)
    else:
      value = nn.sigmoid(q)
      losses = optax.sigmoid_binary_cross_entropy(q, jnp.clip(target, 0.0, 1.0))
    loss = masked.mean(losses, valid)
    metrics = {
      'loss': loss,
      'q_value': masked.mean(value, valid),
      'target_value': masked.mean(target, valid),
      'td_error': masked.mean(jnp.abs(value - target), valid),
    }
    return loss, jax.lax.stop_gradient(metrics)

  def update(
    self, state: QTOptState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one gradient step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, L, ...]`. Without the extra `target`, the targets are computed first.
      probabilities: ignored; replay samples uniformly.

    Returns:
      The next state, no priorities, and metrics: those of `loss`, `grad_norm` (before clipping),
      `learning_rate`, and `policy_lag_mean` and `policy_lag_max`, in learner steps.
    """
    del probabilities
    config = self._config
    if 'target' in unrolls.extras:
      targets = unrolls.extras['target']
    else:
      key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.learner_steps)
      keys = jax.random.split(key, unrolls.environment_id.shape[0])
      targets = self.targets(state.params, unrolls, keys)
    gradients, metrics = jax.grad(self.loss, has_aux=True)(state.online, unrolls, targets)
    online, opt_state, grad_norm = self._optimizer.step(gradients, state.opt_state, state.online)
    learner_steps = state.learner_steps + 1
    # In this order of operations, the average of constant parameters is exactly these.
    average = jax.tree.map(
      lambda new, old: old + (1.0 - config.averaging) * (new - old), online, state.params.average
    )
    copies = learner_steps % config.target_update_period == 0
    lagged, pending = jax.tree.map(
      lambda new, old: jnp.where(copies, new, old),
      (state.pending, average),
      (state.params.lagged, state.pending),
    )
    metrics = {
      **metrics,
      'grad_norm': grad_norm,
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    params = Params(average, lagged)
    return UpdateOutput(
      QTOptState(params, online, pending, opt_state, learner_steps, state.key), None, metrics
    )

  def _output(self, params: Params, core_state: Nest, timestep: Timestep) -> tuple[Nest, Nest]:
    return self.network.step(params.average['torso'], core_state, timestep)

  def _features(self, network: Nest, unrolls: Unroll) -> Array:
    """Returns the features of all rows, `[B, L, F]`."""
    rows = swapped((unrolls.timestep, unrolls.action))
    features, _ = self.network.unroll(network['torso'], unrolls.core_state, *rows)
    return jnp.swapaxes(features, 0, 1)

  def _logits(self, network: Nest, features: Array, action: Array) -> Array:
    """Returns the outputs of the head: Q, or with the cross-entropy loss its logits."""
    outputs: Array = self._head.apply(network['head'], features, action)
    return outputs

  def _value(self, network: Nest, features: Array, action: Array) -> Array:
    """Returns Q, in units of scaled return, for features `[..., F]` and actions `[..., n]`."""
    q = self._logits(network, features, action)
    return q if self._config.value_loss == 'squared' else nn.sigmoid(q)

  def _search(self, network: Nest, features: Array, key: Array) -> Array:
    """Returns the action with the highest Q, float32 `[n]` in [-1, 1], for features `[F]`."""

    def score(actions: Array) -> Array:
      repeated = jnp.broadcast_to(features, (*actions.shape[:-1], *features.shape))
      return self._logits(network, repeated, actions)

    config = self._config
    return cem.maximise(
      score,
      key,
      self._box.num_dimensions,
      num_samples=config.num_samples,
      num_elites=config.num_elites,
      num_iterations=config.num_iterations,
      min_std=config.min_std,
    )
