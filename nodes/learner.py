"""Learner without inference: trains, and serves parameters to the nodes that run inference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import acme
from acme import specs

from agents.agent import Agent
from agents.types import Nest
from environments.base import BatchedEnvironment
from nodes.learning import loop
from nodes.learning.options import TrainingOptions
from nodes.learning.parameter_server import ParameterServer, ParamsVersion
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters
from nodes.runtime.gate import ReadyGate


class LearnerNode(acme.VariableSource):
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
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._training = training
    self._gate = ReadyGate()
    self._server: ParameterServer | None = None

  def get_variables(self, names: Sequence[str]) -> list[Nest] | None:
    """Returns a consistent set of variables, as NumPy arrays and numbers.

    An RPC. It waits for the first parameters.

    Args:
      names: 'params'; 'policy_version', their learner step; 'counts', the run's counters when the
        parameters were published.

    Returns:
      One value per name; None if the program stops before the first parameters.
    """
    server = self._ready()
    return server.get_variables(names) if server else None

  def fetch(
    self,
    held: ParamsVersion | None,
    run: str,
    actor_id: str,
    incarnation: int,
    totals: Sequence[float],
  ) -> tuple[bool, ParamsVersion | None, Nest | None]:
    """Records an actor's totals and returns the newest parameters unless the actor has them.

    An RPC. It is idempotent, since totals are absolute. It waits for the first parameters. If nothing
    changed, the reply is a few bytes.

    Args:
      held: version of the actor's parameters, from an earlier reply; None if it has none.
      run: the token of the actor's run.
      actor_id: such as 'actor/3'.
      incarnation: identifies the incarnation of the actor process.
      totals: `nodes.runtime.counters.ActingTotals` since the start of that incarnation.

    Returns:
      Whether training has finished and the actor must stop; the version of the newest parameters,
      (learner incarnation, policy_version); the parameters as NumPy arrays, None if the actor has them.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the actor belongs to another run.
    """
    server = self._ready()
    return server.fetch(held, run, actor_id, incarnation, totals) if server else (True, None, None)

  def run(self) -> None:
    """Trains until `num_steps`, then serves parameters until the program stops."""
    stop = lifecycle.stop_event()
    with self._gate.release_on_exit(stop):
      training = self._training
      prepared = loop.prepare(self._make_agent, self._make_environment, training)
      progress = ActingCounters(prepared.counter, prepared.action_repeat)
      self._server = ParameterServer(progress, prepared.counter, self._gate)
      loop.train(prepared, training, self._server, self._replay_addresses, self._monitor, stop)

  def _ready(self) -> ParameterServer | None:
    """Waits for the gate; returns the server, or None if the program stopped before any parameters."""
    self._gate.wait()
    self._gate.check()
    return self._server if self._server is not None and self._server.has_params else None
