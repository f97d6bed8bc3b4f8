"""Learner without inference: trains, and serves parameters to the nodes that run inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment
from nodes.learning import loop
from nodes.learning.options import TrainingOptions
from nodes.learning.parameter_server import ParameterServer
from nodes.learning.parameter_service import ParameterService
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters


class LearnerNode(ParameterService):
  """Trains until `num_steps`, then serves the final parameters until the program stops."""

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    replay_addresses: Sequence[str],
    monitor: Any,
    training: TrainingOptions,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      training: options of learning.
    """
    super().__init__()
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._training = training

  def run(self) -> None:
    """Trains until `num_steps`, then serves parameters until the program stops."""
    stop = lifecycle.stop_event()
    with self._gate.release_on_exit(stop):
      training = self._training
      prepared = loop.prepare(self._make_agent, self._make_environment, training)
      progress = ActingCounters(prepared.counter, prepared.action_repeat)
      self._server = ParameterServer(progress, prepared.counter, self._gate)
      loop.train(prepared, training, self._server, self._replay_addresses, self._monitor, stop)
