"""The network of an agent, for acting and learning: torso, optional recurrent core, any head."""

from __future__ import annotations

import copy
from typing import Self

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp

from agents import spaces
from agents.action_mask import LegalActions
from agents.networks import core_state as core_states
from agents.networks import cores, frame_stack, loops, observation_statistics, statistics, torsos
from agents.networks.config import NetworkConfig
from agents.networks.nest_torso import make_torso
from agents.types import FIRST, Array, Nest, Timestep


class IdentityHead(nn.Module):
  """The head of a network whose outputs are the features themselves."""

  def __call__(self, features: Array) -> Array:
    """Returns the features."""
    return features


class Body(nn.Module):
  """Torso, core (None for a memoryless network) and head, as one module with one set of params."""

  torso: nn.Module
  core: cores.Core | None
  head: nn.Module

  def __call__(
    self, observation: Nest, context: Array | None, is_first: Array, state: Nest
  ) -> tuple[Nest, Nest]:
    """Runs `T` rows.

    Args:
      observation: `[T, B, ...]` per leaf, frames already stacked.
      context: float32 `[T, B, n]`, the core's inputs besides the features; None without a core.
      is_first: bool `[T, B]`.
      state: the core's state before row 0; None without a core.

    Returns:
      The head's outputs, `[T, B, ...]` per leaf, and the core's state after row T-1.
    """
    num_rows, batch_size = is_first.shape
    # Rows are merged with the batch axis major, so that a batch sharded over devices stays sharded.
    rows = jax.tree.map(
      lambda x: x.swapaxes(0, 1).reshape(batch_size * num_rows, *x.shape[2:]), observation
    )
    features = self.torso(rows)
    torsos.check_features(features, batch_size * num_rows)
    features = features.reshape(batch_size, num_rows, -1).swapaxes(0, 1)
    if self.core is not None and context is not None:
      features, state = self.core(jnp.concatenate([features, context], -1), is_first, state)
    return self.head(features), state


class RecurrentNetwork:
  """A network over rows, generic over the head. Its methods are pure.

  The head is a module from float32 `[T, B, features]` to a nest of `[T, B, ...]`. The core
  receives the torso's features, the previously executed action and the reward that arrived with the
  row (Espeholt et al. 2018, Figure 3), clipped to [-1, 1] with `clip_reward_input`.

  The network does not see an action mask. Where actions may be illegal, its outputs are
  `head.masked(outputs, legal)`, with legal actions bool `[T, B, A]`; see `agents.action_mask`.

  Attributes:
    body: the flax module; independent of specs, frame stacks and previous actions.

  Raises:
    ValueError: the torso cannot take the observations, or an action mask does not fit the actions.
  """

  def __init__(
    self,
    config: NetworkConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
    head: nn.Module,
    *,
    twins: bool = False,
  ) -> None:
    """Initialises the modules.

    Args:
      config: of the network.
      observation_spec: of one observation, a nest.
      action_spec: of one action.
      head: see the class docstring.
      twins: whether there are two torsos, whose features the head receives one after the other.
    """
    self._legal = LegalActions(observation_spec, action_spec)
    self._config = config
    self._observation_spec = spaces.seen(observation_spec)
    self._action_spec = action_spec
    torso = make_torso(config, self._observation_spec)
    self.body = Body(
      torso=torsos.Twins(torso, make_torso(config, self._observation_spec)) if twins else torso,
      core=cores.make(config),
      head=head,
    )

  def for_loops(self) -> Self:
    """Returns the network for use within a loop: as before, except for rounding and speed."""
    network = copy.copy(self)
    network.body = loops.for_loops(self.body)
    return network

  def init(self, key: Array) -> Nest:
    """Returns new parameters, a nest of float32 arrays.

    Raises:
      ValueError: a user's own torso has other variables too; one sentence.
    """
    timestep = Timestep(
      step_type=jnp.full((1, 1), FIRST),
      reward=jnp.zeros((1, 1), jnp.float32),
      discount=jnp.ones((1, 1), jnp.float32),
      observation=jax.tree.map(
        lambda spec: jnp.zeros((1, 1, *spec.shape), spec.dtype), self._observation_spec
      ),
    )
    state = self.initial_core_state(1)
    inputs, _ = self._inputs(state, timestep, core_states.no_action(self._action_spec, 1)[None])
    variables = self.body.init(key, *inputs)
    torsos.check_variables(variables)
    return variables

  def initial_core_state(self, batch_size: int) -> dict[str, Nest]:
    """Returns the core state at the start of an episode, `[batch_size, ...]` per leaf."""
    state = core_states.initial(self._config, self._observation_spec, self._action_spec, batch_size)
    if self.body.core is not None:
      state[self._config.core] = self.body.core.initial_state(batch_size)
    return state

  def unroll(
    self, params: Nest, core_state: Nest, timestep: Timestep, action: Array
  ) -> tuple[Nest, Nest]:
    """Runs `T` consecutive rows; they may span episodes.

    Args:
      params: what `init` returned, possibly with `agents.networks.statistics`.
      core_state: `[B, ...]` per leaf, before row 0 was consumed.
      timestep: fields are `[T, B, ...]`.
      action: `[T, B, ...]`, as executed in each row. The outputs do not depend on the last one.

    Returns:
      The head's outputs, `[T, B, ...]` per leaf, and the core state before row T is consumed.
    """
    legal = jax.vmap(self._legal.of)(timestep.observation) if self._legal.some_illegal else None
    seen = spaces.seen(timestep.observation)
    (observation, *others), carried = self._inputs(
      core_state, timestep._replace(observation=seen), action
    )
    if statistics.OBSERVATIONS in params:
      found = params[statistics.OBSERVATIONS]
      observation = observation_statistics.normalized(found, observation)
    outputs, state = self.body.apply(params, observation, *others)
    if legal is not None:
      outputs = self.body.head.masked(outputs, legal)
    if self.body.core is not None:
      carried[self._config.core] = state
    return outputs, carried

  def core_state_of_rows(self, core_state: Nest, timestep: Timestep) -> dict[str, Nest]:
    """Returns the core state before each of `T` rows, `[T, B, ...]` per leaf, of a network without core.

    Args:
      core_state: `[B, ...]` per leaf, before row 0 was consumed.
      timestep: fields are `[T, B, ...]`.
    """
    assert self.body.core is None
    if 'frames' not in core_state:
      return {}
    is_first = timestep.step_type == FIRST
    seen = spaces.seen(timestep.observation)
    return {'frames': frame_stack.frames_before_rows(core_state['frames'], seen, is_first)}

  def step(self, params: Nest, core_state: Nest, timestep: Timestep) -> tuple[Nest, Nest]:
    """Runs one row before its action is chosen: `unroll` with T=1 and no time axes.

    Args:
      params: what `init` returned.
      core_state: `[B, ...]` per leaf, before the row was consumed.
      timestep: fields are `[B, ...]`.

    Returns:
      The head's outputs, `[B, ...]` per leaf, and the core state after the row, which `record_action`
      completes with the chosen action.
    """
    batch_size = timestep.step_type.shape[0]
    unknown = core_states.no_action(self._action_spec, batch_size)[None]
    timestep = jax.tree.map(lambda x: x[None], timestep)
    outputs, core_state = self.unroll(params, core_state, timestep, unknown)
    return jax.tree.map(lambda x: x[0], outputs), core_state

  def record_action(self, core_state: Nest, action: Array) -> Nest:
    """Returns the core state with `action`, `[B, ...]`, as the one executed in the last row."""
    if 'prev_action' not in core_state:
      return core_state
    return {**core_state, 'prev_action': action.astype(core_state['prev_action'].dtype)}

  def _inputs(
    self, core_state: Nest, timestep: Timestep, action: Array
  ) -> tuple[tuple[Nest, Array | None, Array, Nest], dict[str, Nest]]:
    """Returns the arguments of `Body`, and the next core state without the state of the core.

    The observations have no action mask.
    """
    is_first = timestep.step_type == FIRST
    observation, context, carried = timestep.observation, None, {}
    if 'frames' in core_state:
      observation, carried['frames'] = frame_stack.stack_frames(
        core_state['frames'], observation, is_first
      )
    if 'prev_action' in core_state:
      before = core_state['prev_action']
      executed = jnp.concatenate([before[None], action.astype(before.dtype)])
      previous, carried['prev_action'] = executed[:-1], executed[-1]
      none = core_states.no_action(self._action_spec, 1)[None]
      reward = timestep.reward.astype(jnp.float32)
      if self._config.clip_reward_input:
        reward = jnp.clip(reward, -1.0, 1.0)
      previous, reward = core_states.reset((previous, reward), (none, 0.0), is_first)
      encoded = core_states.encode_action(self._action_spec, previous)
      context = jnp.concatenate([encoded, reward[..., None]], -1)
    return (observation, context, is_first, core_state.get(self._config.core)), carried
