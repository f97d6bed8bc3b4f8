"""An agent some of whose options are arrays in its learner state, so that they may change."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import optimizers
from agents.agent import ActOutput, Agent, LearnerState, UpdateOutput
from agents.types import Array, Nest, Timestep, Unroll


class TunedState(NamedTuple):
  """The learner state of an agent, and the values of its options that may change."""

  params: Nest
  opt_state: optax.OptState
  learner_steps: Array  # int32 `[]`, updates done.
  others: dict[str, Nest]  # The rest of the agent's own state, by field.
  values: dict[str, Array]  # float32 `[]`, by option.


class Tuned(Agent):
  """Another agent, whose `update` reads some of its options from the learner state.

  An update builds the agent with arrays as the values of these options. So other values compile nothing,
  and what the agent does with its options is written once. Acting keeps the options of the config.
  """

  def __init__(
    self,
    make: Callable[[Any, Nest, Any], Agent],
    config: Any,
    values: Mapping[str, float],
    observation_spec: Nest,
    action_spec: Any,
  ) -> None:
    """Initialises the agent.

    Args:
      make: takes the agent's options and the specs.
      config: the agent's options.
      values: of options in `config.tunable`, as `init` sets them.
      observation_spec: of one observation.
      action_spec: of one action.
    """
    self._config, self._values = config, dict(values)
    self._make = lambda config: make(config, observation_spec, action_spec)
    self._agent = self._make(config)
    self.unroll_rows = self._agent.unroll_rows
    self.unroll_period = self._agent.unroll_period
    self.evaluation_exploration = self._agent.evaluation_exploration

  def for_loops(self) -> Self:
    """Returns the same of the agent for use within a loop; see the base class."""
    tuned = copy.copy(self)
    tuned._make = lambda config: self._make(config).for_loops()
    tuned._agent = self._agent.for_loops()
    return tuned

  def init(self, key: Array) -> TunedState:
    """Returns a new learner state, with the initial values."""
    values = {name: jnp.float32(value) for name, value in self._values.items()}
    return self._tuned(self._agent.init(key), values)

  def with_params(self, state: TunedState, params: Nest) -> TunedState:
    """Returns a new learner state that begins with other parameters; see the base class."""
    return self._tuned(self._agent.with_params(self._own(state), params), state.values)

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns that of the agent."""
    return self._agent.initial_core_state(batch_size)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns that of the agent."""
    return self._agent.exploration(num_environments)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Acts as the agent does."""
    return self._agent.act(params, core_state, timestep, exploration, keys)

  def update(
    self, state: TunedState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does the agent's update with the values of the state, which are among its metrics."""
    agent = self._make(dataclasses.replace(self._config, **state.values))
    output = agent.update(self._own(state), unrolls, probabilities)
    # Of a learning rate that decays, the agent's own metric has what is left.
    metrics = {**state.values, **output.metrics}
    return UpdateOutput(self._tuned(output.state, state.values), output.priorities, metrics)

  def initial_priorities(self, unrolls: Unroll) -> Array | None:
    """Returns those of the agent, with the options of the config."""
    return self._agent.initial_priorities(unrolls)

  @functools.cached_property
  def _state_type(self) -> Any:
    return type(jax.eval_shape(lambda: self._agent.init(jax.random.key(0))))

  def _own(self, state: TunedState) -> LearnerState:
    """Returns a learner state as the agent has it."""
    return self._state_type(
      params=state.params,
      opt_state=state.opt_state,
      learner_steps=state.learner_steps,
      **state.others,
    )

  def _tuned(self, own: LearnerState, values: Mapping[str, Array]) -> TunedState:
    others = own._asdict()
    params, opt_state, learner_steps = map(others.pop, ('params', 'opt_state', 'learner_steps'))
    return TunedState(params, opt_state, learner_steps, others, dict(values))


def inherited(own: TunedState, source: TunedState, values: Mapping[str, float]) -> TunedState:
  """Returns what a learner continues with that takes the place of another one's offspring.

  It has the parameters of the source, the state of its optimizer and the rest, with values of its own.
  Its counter of learner steps stays, and so does the place of its learning rate in a schedule.

  Args:
    own: the learner's state, as NumPy arrays; so is `source`.
    source: of which it inherits.
    values: of all options in `own.values`.
  """
  return source._replace(
    opt_state=optimizers.with_counts_of(source.opt_state, own.opt_state),
    learner_steps=own.learner_steps,
    values={name: np.float32(values[name]) for name in own.values},
  )
