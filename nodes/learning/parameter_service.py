"""The RPCs by which nodes fetch the parameters of a node that learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import acme

from agents.types import Nest
from nodes.learning.parameter_server import ParameterServer, ParamsVersion
from nodes.learning.replay_training import ParameterConsumer
from nodes.runtime.counters import ActingTotals
from nodes.runtime.gate import ReadyGate


class ParameterService(acme.VariableSource):
  """Base class of nodes that learn and serve their parameters; a node sets `_server` once it has one."""

  def __init__(self) -> None:
    self._gate = ReadyGate()
    self._server: ParameterServer | None = None

  def get_variables(self, names: Sequence[str]) -> list[Any] | None:
    """Returns a consistent set of variables, as data.

    An RPC. It waits for the first parameters.

    Args:
      names: 'params', as `serialisation.to_data`; 'policy_version', their learner step; 'counts', the
        run's counters when the parameters were published.

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
  ) -> tuple[bool, ParamsVersion | None, Any, float]:
    """Records an actor's totals and returns the newest parameters unless the actor has them.

    An RPC. It is idempotent, since totals are absolute. It waits for the first parameters. If nothing
    changed, the reply is a few bytes. A node that does not act has totals of 0.

    Args:
      held: version of the actor's parameters, from an earlier reply; None if it has none.
      run: the token of the actor's run.
      actor_id: such as 'actor/3'.
      incarnation: identifies the incarnation of the actor process.
      totals: `nodes.runtime.counters.ActingTotals` since the start of that incarnation.

    Returns:
      Whether training has finished and the actor must stop; the version of the newest parameters,
      (learner incarnation, policy_version); the parameters as `serialisation.to_data`, None if the actor
      has them; the seconds until the next fetch, at least, which grow with the number of nodes that
      fetch and with the parameters, so that thousands of actors leave the learner time to learn.

    Raises:
      RuntimeError: `rpc.retry_later_error()`, if the actor belongs to another run.
    """
    server = self._ready()
    if server is None:
      return True, None, None, 0.0
    return server.fetch(held, run, actor_id, incarnation, totals)

  def _ready(self) -> ParameterServer | None:
    """Waits for the gate; returns the server, or None if the program stopped before any parameters."""
    self._gate.wait()
    self._gate.check()
    return self._server if self._server is not None and self._server.has_params else None


class ActingAndServing:
  """A `ParameterConsumer` with two parts: one acts with the parameters, one serves them to nodes."""

  def __init__(self, acting: ParameterConsumer, server: ParameterServer):
    """Initialises with both; `acting` alone has threads and measurements."""
    self._acting, self._server = acting, server
    self.start, self.check, self.measure = acting.start, acting.check, acting.measure
    self.stop_writing = acting.stop_writing

  def set_params(self, version: int, params: Nest) -> None:
    """Sets the parameters to act with, and publishes them."""
    self._acting.set_params(version, params)
    self._server.set_params(version, params)

  def compile(self) -> None:
    """Starts to reply to fetches, then compiles."""
    self._server.compile()
    self._acting.compile()

  def totals(self) -> ActingTotals:
    """Returns the steps and episodes of the actors since the start."""
    return self._acting.totals()

  def finish_training(self) -> None:
    """Stops the actors, and other nodes at their next fetch."""
    self._acting.finish_training()
    self._server.finish_training()
