"""What agents with a network over rows share: acting with it."""

from __future__ import annotations

import abc
import copy
from typing import Self

from agents.agent import ActOutput, Agent
from agents.networks.recurrent import RecurrentNetwork
from agents.types import Array, Nest, Timestep


class NetworkAgent(Agent):
  """An agent that acts by `policy` on the output of a network; subclasses set `network`.

  Attributes:
    network: the network, which keeps the core state.
  """

  network: RecurrentNetwork

  def for_loops(self) -> Self:
    """Returns the agent with a network for loops; see the base class."""
    agent = copy.copy(self)
    agent.network = self.network.for_loops()
    return agent

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns the core state at the start of an episode, `[batch_size, ...]` per leaf.

    It is that of `agents.networks.core_state`, `{}` without core and frame stack.
    """
    return self.network.initial_core_state(batch_size)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Acts by `policy`, and keeps the core state: memory and stacked frames.

    Args:
      params: the `params` of a learner state.
      core_state: `[B, ...]` per leaf, before the timestep.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.
    """
    output, core_state = self._output(params, core_state, timestep)
    action, extras = self.policy(params, output, timestep, exploration, keys)
    return ActOutput(action, extras, self.network.record_action(core_state, action))

  @abc.abstractmethod
  def policy(
    self, params: Nest, output: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Returns the actions, `[B, ...]`, and the extras of the rows, for an output of the network.

    Args:
      params: the `params` of a learner state.
      output: of the network, `[B, ...]` per leaf.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.
    """

  def _output(self, params: Nest, core_state: Nest, timestep: Timestep) -> tuple[Nest, Nest]:
    """Returns what `policy` takes, and the core state after the timestep."""
    return self.network.step(params, core_state, timestep)
