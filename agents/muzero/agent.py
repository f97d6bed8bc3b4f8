"""MuZero as an `Agent`: discrete actions, prioritized replay."""

from __future__ import annotations

from typing import Any, NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import masked, spaces
from agents.action_mask import LegalActions
from agents.agent import ActOutput, Agent, UpdateOutput
from agents.axes import swapped
from agents.metrics import policy_lag
from agents.muzero import loss as losses
from agents.muzero.categorical import expectation
from agents.muzero.config import MuZeroConfig
from agents.muzero.model import make_model
from agents.muzero.search import Root, SearchResult, search, temperature
from agents.muzero.targets import Targets, make_targets, n_step_values, windows
from agents.networks.frame_stack import stack_frames
from agents.networks.torsos import check_variables
from agents.optimizers import Optimizer
from agents.priorities import importance_weights
from agents.turns import TurnActions
from agents.types import FIRST, Array, Nest, Timestep, Unroll


class Params(NamedTuple):
  """What `act` takes."""

  network: Nest
  temperature: Array  # float32 `[]`, of the visits; it follows training.


class MuZeroState(NamedTuple):
  """The learner state of MuZero."""

  params: Params
  target_params: Nest  # Of the network.
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.
  key: Array  # uint32 `[...]`, data of the PRNG key of all reanalyses; it never changes.


class MuZero(Agent):
  """MuZero (Schrittwieser et al. 2020), with the search of Gumbel MuZero (Danihelka et al. 2022).

  An unroll has P = `unroll_length` starts, from each of which the model is unrolled, and K + n rows
  after them. Unrolls start P rows apart, so each row of a stream is a start of exactly one unroll,
  except for the first ones. One update is one learner step of `updates_per_batch` gradient steps. It
  reduces over the whole batch, so under `jax.jit` the result is the same on one device and sharded over
  many.

  Where two players move in turn, values change their sign at every step of a search, which tries legal
  actions only at its root; see `TurnActions`. An action mask does so for any environment; see
  `agents.action_mask`.

  The constructor starts no JAX backend.

  Attributes:
    model: the networks.

  Raises:
    ValueError: the config is unusable or does not fit the observations, or actions are not discrete.
  """

  Config = MuZeroConfig
  evaluation_exploration = 0.0

  def __init__(
    self,
    config: MuZeroConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    config.validate()
    spaces.check_actions(config, action_spec)
    self._legal = LegalActions(observation_spec, action_spec)
    seen = spaces.seen(observation_spec)
    self.unroll_rows = config.unroll_rows
    self.unroll_period = config.unroll_length
    self.model = make_model(config, seen, action_spec.num_values)
    self._config = config
    self._observation_spec = seen
    self._in_turns = isinstance(action_spec, TurnActions)
    self._optimizer = Optimizer(config, config.updates_per_batch)

  def init(self, key: Array) -> MuZeroState:
    """Returns a new learner state; the target network starts as a copy of the online network.

    Raises:
      ValueError: a user's own torso has other variables besides its parameters; one sentence.
    """
    params_key, key = jax.random.split(key)
    depth = self._config.frame_stack
    stack = (depth,) if depth > 1 else ()
    observation = jax.tree.map(
      lambda spec: jnp.zeros((1, *spec.shape, *stack), spec.dtype), self._observation_spec
    )
    network = self.model.init(params_key, observation, jnp.zeros(1, jnp.int32))
    check_variables(network)
    steps = jnp.int32(0)
    return MuZeroState(
      Params(network, temperature(self._config, steps)),
      jax.tree.map(jnp.copy, network),
      self._optimizer.init(network),
      steps,
      jax.random.key_data(key),
    )

  def with_params(self, state: MuZeroState, params: Params) -> MuZeroState:
    """Returns a new learner state, whose online and target network have the other run's parameters.

    The temperature follows this run's learner steps, so it stays.
    """
    return state._replace(
      params=state.params._replace(network=params.network),
      target_params=jax.tree.map(np.copy, params.network),
    )

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the frames before an episode, `[batch_size, ...]` per leaf; `{}` without a frame stack."""
    before = batch_size, self._config.frame_stack - 1
    if not before[1]:
      return {}
    return {
      'frames': jax.tree.map(
        lambda spec: jnp.zeros((*before, *spec.shape), spec.dtype), self._observation_spec
      )
    }

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns ones: training environments search with all of the noise."""
    return np.ones((num_environments,), np.float32)

  def act(
    self, params: Params, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Acts by `policy`, and keeps the core state: stacked frames.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.
    """
    rows = jax.tree.map(lambda x: x[None], timestep)
    observation, core_state = self._observe(core_state, rows)
    observation = jax.tree.map(lambda x: x[0], observation)
    action, extras = self.policy(params, observation, timestep, exploration, keys)
    return ActOutput(action, extras, core_state)

  def policy(
    self, params: Params, output: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Acts by a search, which runs the networks itself.

    Args:
      params: the `params` of a learner state.
      output: observations with stacked frames, `[B, ...]` per leaf, from which the search begins.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`, factor of the search's noise; 0 acts greedily.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions int32 `[B]`, and the extras `search_policy`, float32 `[B, A]`, and `root_value`, float32
      `[B]`, in units of return.
    """
    illegal = self._illegal(timestep.observation)
    found = self.plan(params, output, exploration, keys, illegal)
    # What the search has found is what the networks learn to predict.
    return found.action, {'search_policy': found.policy, 'root_value': found.value}

  def plan(
    self,
    params: Params,
    observation: Nest,
    exploration: Array,
    keys: Array,
    illegal: Array | None = None,
  ) -> SearchResult:
    """Searches from observations with stacked frames, `[N, ...]` per leaf; the rest is as in `act`.

    `illegal`, bool `[N, A]`, says which actions are illegal; None if all are legal.
    """

    def step(network: Nest, state: Array, action: Array) -> tuple[Array, Root]:
      state, reward = self.model.apply(network, state, action, method='dynamics')
      return expectation(self._config, reward), self._root(network, state)

    state = self.model.apply(params.network, observation, method='represent')
    root = self._root(params.network, state)
    return search(
      self._config,
      step,
      params.network,
      root,
      exploration,
      params.temperature,
      keys,
      illegal,
      self._in_turns,
    )

  def initial_priorities(self, unrolls: Unroll) -> Array:
    """Returns the priorities of new unrolls, float32 `[B]`, from the root values in the extras.

    The targets bootstrap from the root values of the searches.
    """
    values, starts = unrolls.extras['root_value'], self._config.unroll_length
    targets = n_step_values(self._config, unrolls.timestep, values)[:, :starts]
    valid = masked.transitions(unrolls.timestep.step_type[:, :starts])
    return losses.priorities(self._config, values[:, :starts], targets, valid)

  def update(
    self, state: MuZeroState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one learner step.

    Unroll i of every `updates_per_batch` neighbours is in gradient step i, so taking it moves nothing
    between devices that hold whole groups of neighbours.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, P + K + n, ...]`, extras as returned by `act`.
      probabilities: float32 `[B]`, with which replay sampled each unroll; None for uniform ones.

    Returns:
      The next state; priorities, float32 `[B]`, from the errors before the unroll's gradient step; and
      the metrics of `loss` and `grad_norm` (before clipping), means over the gradient steps, with
      `learning_rate`, `temperature`, `policy_lag_mean` and `policy_lag_max`.

    Raises:
      ValueError: the batch does not divide into `updates_per_batch`.
    """
    config, batch_size = self._config, unrolls.action.shape[0]
    num_parts = config.updates_per_batch
    if batch_size % num_parts:
      raise ValueError(
        f'--updates_per_batch={num_parts} does not divide a batch of {batch_size} unrolls; make the '
        'batch a multiple.'
      )
    weights = importance_weights(probabilities, config.importance_exponent, batch_size)
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.learner_steps)

    def gradient_step(
      carry: tuple[Nest, optax.OptState], part: tuple[Unroll, Array, Array]
    ) -> tuple[tuple[Nest, optax.OptState], tuple[Array, dict[str, Array]]]:
      network, opt_state = carry
      gradients, (priorities, metrics) = jax.grad(self.loss, has_aux=True)(
        network, state.target_params, *part
      )
      network, opt_state, metrics['grad_norm'] = self._optimizer.step(gradients, opt_state, network)
      return (network, opt_state), (priorities, metrics)

    parts = jax.tree.map(
      lambda x: jnp.swapaxes(x.reshape(-1, num_parts, *x.shape[1:]), 0, 1), (unrolls, weights)
    )
    (network, opt_state), (priorities, metrics) = jax.lax.scan(
      gradient_step,
      (state.params.network, state.opt_state),
      (*parts, jax.random.split(key, num_parts)),
    )
    learner_steps = state.learner_steps + 1
    target_params = optax.periodic_update(
      network, state.target_params, learner_steps, config.target_update_period
    )
    metrics = {
      **jax.tree.map(jnp.mean, metrics),
      'learning_rate': self._optimizer.learning_rate(state.learner_steps),
      'temperature': state.params.temperature,
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    params = Params(network, temperature(config, learner_steps))
    state = MuZeroState(params, target_params, opt_state, learner_steps, state.key)
    return UpdateOutput(state, priorities.T.reshape(batch_size), metrics)

  def relabel(self, params: Params, unrolls: Unroll, keys: Array) -> dict[str, Array]:
    """Searches again from every row, as in training (MuZero Reanalyze; MuZero, appendix H).

    The results are targets: of policies and, with `bootstrap='search'`, of values. With the parameters
    and row keys that acted they equal what is stored.

    Args:
      params: the `params` of a learner state.
      unrolls: fields are `[B, L, ...]`.
      keys: `[B]` typed PRNG keys; row t of unroll i has the key `row_keys(keys, L)[i, t]`.

    Returns:
      The extras `search_policy`, float32 `[B, L, A]`, and `root_value`, float32 `[B, L]`.
    """
    observation, _ = self._observe(unrolls.core_state, swapped(unrolls.timestep))
    found = self.reanalyse(
      params,
      swapped(observation),
      row_keys(keys, self.unroll_rows),
      jax.vmap(self._illegal)(unrolls.timestep.observation),
    )
    return {'search_policy': found.policy, 'root_value': found.value}

  def reanalyse(
    self, params: Params, observation: Nest, keys: Array, illegal: Array | None = None
  ) -> SearchResult:
    """Returns fresh searches, `[B, R, ...]`, as in training.

    Args:
      params: as in `act`.
      observation: `[B, R, ...]` per leaf, with stacked frames.
      keys: `[B, R]` typed PRNG keys.
      illegal: bool `[B, R, A]`, which actions are illegal; None if all are legal.
    """
    observation, row_keys, illegal = _merge((observation, keys, illegal))
    exploration = jnp.ones(row_keys.shape, jnp.float32)
    found = self.plan(params, observation, exploration, row_keys, illegal)
    return jax.tree.map(lambda x: x.reshape(*keys.shape, *x.shape[1:]), found)

  def loss(
    self, network: Nest, target_params: Nest, unrolls: Unroll, weights: Array, key: Array
  ) -> tuple[Array, tuple[Array, dict[str, Array]]]:
    """Returns the loss of one part of a batch, float32 `[]`, its priorities, float32 `[B]`, and metrics.

    Args:
      network: the parameters to train.
      target_params: those of the target network.
      unrolls: fields are `[B, P + K + n, ...]`.
      weights: float32 `[B]`, the importance weights.
      key: a typed PRNG key, of the searches for fresh targets.
    """
    observation, _ = self._observe(unrolls.core_state, swapped(unrolls.timestep))
    observation = swapped(observation)
    targets = self.targets(target_params, unrolls, observation, key)
    starts = jax.tree.map(lambda x: x[:, : self._config.unroll_length], observation)
    # The model sees the first observation and the actions that were taken, nothing else.
    actions = windows(self._config, unrolls.action, self._config.num_unroll_steps)
    unrolled = losses.unroll_model(self.model, network, *_merge((starts, actions)))
    return losses.muzero_loss(self._config, unrolled, targets, weights)

  def targets(self, target_params: Nest, unrolls: Unroll, observation: Nest, key: Array) -> Targets:
    """Returns what reward, value and policy learn from unrolls.

    Args:
      target_params: of the target network.
      unrolls: fields are `[B, P + K + n, ...]`.
      observation: their observations with stacked frames, `[B, L, ...]` per leaf.
      key: a typed PRNG key, of the searches for fresh targets.
    """
    config, timestep = self._config, unrolls.timestep
    if config.bootstrap == 'target':
      values = self._values(target_params, observation)
    else:
      values = unrolls.extras['root_value']
    num_planned = config.unroll_length + config.num_unroll_steps
    policies = unrolls.extras['search_policy'][:, :num_planned]
    # A share of the policies is searched for again: those of old unrolls are worse than today's network
    # can find.
    if config.reanalyse_fraction:
      chosen, group = reanalysed(len(policies), config.reanalyse_fraction)
      rows = observation, jax.vmap(self._illegal)(timestep.observation)
      rows = jax.tree.map(
        lambda x: _merge(x.reshape(-1, group, *x.shape[1:])[:, :chosen, :num_planned]), rows
      )
      keys = jax.random.split(key, (len(policies) // group * chosen, num_planned))
      found = self.reanalyse(Params(target_params, jnp.float32(1.0)), rows[0], keys, rows[1])
      groups = policies.reshape(-1, group, *policies.shape[1:])
      fresh = found.policy.reshape(-1, chosen, *policies.shape[1:])
      policies = _merge(jnp.concatenate([fresh, groups[:, chosen:]], axis=1))
    return make_targets(config, timestep, values, policies)

  def _values(self, network: Nest, observation: Nest) -> Array:
    """Returns the values of rows, float32 `[B, L]`, in units of return; fields are `[B, L, ...]`."""
    state = self.model.apply(network, _merge(observation), method='represent')
    return self._root(network, state).value.reshape(-1, self.unroll_rows)

  def _root(self, network: Nest, state: Array) -> Root:
    """Returns what the network predicts of hidden states `[N, ...]`."""
    prediction: Any = self.model.apply(network, state, method='predict')
    value = expectation(self._config, prediction.value_logits)
    return Root(prediction.policy_logits, value, state)

  def _illegal(self, observation: Nest) -> Array | None:
    """Returns which actions are illegal in rows, bool `[N, A]`; None if all are legal.

    Args:
      observation: `[N, ...]` per leaf, with the mask if there is one, without stacked frames.
    """
    legal = self._legal.of(observation)
    return None if legal is None else ~legal

  def _observe(self, core_state: Nest, rows: Timestep) -> tuple[Nest, Nest]:
    """Returns the observations of rows `[T, B, ...]` with stacked frames, and the next core state."""
    seen = spaces.seen(rows.observation)
    if self._config.frame_stack == 1:
      return seen, core_state
    observation, frames = stack_frames(core_state['frames'], seen, rows.step_type == FIRST)
    return observation, {'frames': frames}


def row_keys(keys: Array, num_rows: int) -> Array:
  """Returns a key for every row, `[B, L]`, from the keys of unrolls, `[B]`."""
  return jax.vmap(lambda key: jax.random.split(key, num_rows))(keys)


def reanalysed(num_unrolls: int, fraction: float) -> tuple[int, int]:
  """Returns k and q: k of every q neighbours in a batch are reanalysed, one at least.

  q is the least divisor of the batch with which k / q is within 1/16 of the fraction, or else closest to
  it. Devices that hold whole groups of q then move nothing, which an index of unrolls would.
  """
  divisors = (q for q in range(1, num_unrolls + 1) if num_unrolls % q == 0)
  choices = [(max(1, round(fraction * q)), q) for q in divisors]
  return min(choices, key=lambda choice: max(abs(choice[0] / choice[1] - fraction), 1 / 16))


def _merge(rows: Nest) -> Nest:
  """Merges the first two axes of every field, `[B, R, ...]` to `[B R, ...]`."""
  return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
