"""A learner without inference: it learns, and serves its parameters to nodes that infer."""

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
  """Learns until `num_steps`, then hands out the final parameters until the program stops."""

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
    """Returns variables of one moment, as NumPy arrays and numbers. An RPC; waits for the first.

    Args:
      names: 'params'; 'policy_version', the learner steps behind them; 'counts', the counters of the
        run as they were published.

    Returns:
      One value for each name; None if there are never any.
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
    """Takes what an actor has done, and returns the newest parameters if it has others. An RPC.

    Idempotent: totals are absolute. Costs little when there is nothing newer. Waits for the first
    parameters.

    Args:
      held: what the answer called the parameters that the actor has; None if it has none.
      run: the token of the actor's run.
      actor_id: such as 'actor/3'.
      incarnation: the identity of this life of the actor process.
      totals: `nodes.runtime.counters.ActingTotals` since the beginning of that life.

    Returns:
      Whether training has finished, so that the actor is to stop; the name of the newest parameters,
      (life of the learner, policy_version); and these as NumPy arrays, None if the actor has them.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the actor is of another run.
    """
    server = self._ready()
    return server.fetch(held, run, actor_id, incarnation, totals) if server else (True, None, None)

  def run(self) -> None:
    """Trains to the end, then answers until the program stops."""
    stop = lifecycle.stop_event()
    with self._gate.release_on_exit(stop):
      training = self._training
      prepared = loop.prepare(self._make_agent, self._make_environment, training)
      progress = ActingCounters(prepared.counter, prepared.action_repeat)
      self._server = ParameterServer(progress, prepared.counter, self._gate)
      loop.train(prepared, training, self._server, self._replay_addresses, self._monitor, stop)

  def _ready(self) -> ParameterServer | None:
    """Waits for the gate; returns the server, None if the program stops before it has parameters."""
    self._gate.wait()
    self._gate.check()
    return self._server if self._server is not None and self._server.has_params else None
