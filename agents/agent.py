"""The agent interface: pure functions over arrays, which the nodes call."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agents.types import Array, Nest, Timestep, Unroll

# A NamedTuple with at least `params`, which `act` takes, `opt_state`, and `learner_steps`, int32 `[]`.
LearnerState = Any


class ActOutput(NamedTuple):
  """The actions for a batch of timesteps, and the state after it."""

  action: Array  # `[B, ...]`, as the environment executes it.
  extras: dict[str, Array]  # `[B, ...]` each, stored in the row.
  core_state: Nest  # `[B, ...]`, after the timestep was consumed.


class UpdateOutput(NamedTuple):
  """The result of one learner step."""

  state: LearnerState
  priorities: Array | None  # float32 `[B]` for prioritized replay; None where replay is a queue.
  metrics: dict[str, Array]  # Scalars, by their logged name.


class Agent(abc.ABC):
  """An algorithm. Its methods are pure: they may be jitted, sharded and called from any thread.

  Nodes call the methods below. The agents of this repository build them from pieces with common names,
  so that a subclass replaces one and copies none:

      policy(params, output, timestep, exploration, keys) -> (action, extras)
          What to do with the network's output for a batch of timesteps. `act` is the network, `policy`,
          and the bookkeeping of the core state.
      loss(params, ...) -> (loss, metrics)
          A scalar float32 `[]`, whose gradient with respect to the first argument `update` follows, and
          scalars by their logged name. With prioritized replay it is (loss, (priorities, metrics)).
      targets(...)
          What the loss takes as given: V-trace targets, advantages, n-step returns. No gradient flows
          through them.

  Attributes:
    Config: the dataclass of the agent's options, which the constructor takes before the specs of
      observations and actions. Its fields become flags.
    unroll_rows: rows `L` in an unroll, burn-in and bootstrap row included.
    unroll_period: rows between the starts of successive unrolls of one environment.
    evaluation_exploration: the exploration of evaluators; `exploration` has that of training.
  """

  Config: ClassVar[type]
  unroll_rows: int
  unroll_period: int
  evaluation_exploration: float = 0.0

  def for_loops(self) -> Agent:
    """Returns the agent for use within a loop, such as `jax.lax.scan`, as Anakin runs it.

    Parameters and results are the same, except for rounding; only the speed may differ.
    """
    return self

  @abc.abstractmethod
  def init(self, key: Array) -> LearnerState:
    """Returns a new learner state, after no learner step."""

  def with_params(self, state: LearnerState, params: Nest) -> LearnerState:
    """Returns a new learner state that begins with the parameters of another run.

    An agent that keeps copies of its parameters, such as a target network, must override this.

    Args:
      state: what `init` returned, as NumPy arrays.
      params: the `params` of the other run's learner state, as NumPy arrays of the same shapes.
    """
    return state._replace(params=params)

  @abc.abstractmethod
  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode, `[batch_size, ...]` per leaf.

    A memoryless agent returns an empty nest.
    """

  @abc.abstractmethod
  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns the exploration of each training environment, float32 `[num_environments]`.

    Each agent defines its meaning.
    """

  @abc.abstractmethod
  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Chooses actions for a batch of timesteps.

    The output for one environment depends on that environment's inputs only.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep; `act` resets it where the timestep is FIRST.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.
    """

  @abc.abstractmethod
  def update(
    self, state: LearnerState, unrolls: Unroll, probabilities: Array | None
  ) -> UpdateOutput:
    """Does one learner step on a batch of unrolls.

    Args:
      state: what `init` or the previous `update` returned.
      unrolls: fields are `[B, L, ...]`, batch first, as replay delivers them.
      probabilities: float32 `[B]`, with which replay sampled each unroll; None for a queue.
    """

  def initial_priorities(self, unrolls: Unroll) -> Array | None:
    """Returns the priorities, float32 `[B]`, of new unrolls in prioritized replay; None for a queue.

    It needs no parameters: the extras of `unrolls`, fields `[B, L, ...]`, hold the network outputs at
    acting time.
    """
    del unrolls
    return None

  def relabel(self, params: Nest, unrolls: Unroll, keys: Array) -> dict[str, Array]:
    """Returns the extras of copies of unrolls, with fresh targets; only relabellers call it.

    The extras of one copy depend on its own unroll and key only.

    Args:
      params: the `params` of a learner state, mostly newer than those that acted.
      unrolls: fields are `[B, L, ...]`.
      keys: `[B]` typed PRNG keys.

    Returns:
      Arrays `[B, ...]`. Names and shapes may differ from those of `act`; then a batch of `update` has
      copies only.

    Raises:
      NotImplementedError: the agent has no relabelling.
    """
    raise NotImplementedError(f'{type(self).__name__} does not define `relabel`.')
