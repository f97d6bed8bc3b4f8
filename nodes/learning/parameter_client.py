"""Keeps an actor's parameters up to date, like Acme's variable client."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from agents import shapes
from agents.agent import Agent
from agents.types import Nest
from nodes.learning import serialisation
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingTotals


class Acting(Protocol):
  """Acts with parameters; implemented by `nodes.inference.server.InferenceServer`."""

  def totals(self) -> ActingTotals:
    """Returns the actors' totals since the start."""

  def set_params(self, version: int, params: Nest) -> None:
    """Sets the parameters to act with."""


class ParameterClient:
  """Fetches the newest parameters from the learner every `period` seconds, in a thread.

  The pauses are longer if the learner asks for that, as it does where many nodes fetch. The actor keeps
  its current parameters during a fetch. The client retries while the learner is unavailable.
  """

  def __init__(
    self,
    learner: Any,
    actor_id: str,
    incarnation: int,
    period: float,
    totals: Callable[[], ActingTotals],
    set_params: Callable[[int, Nest], None],
    template: Nest,
  ):
    """Initialises a client.

    Args:
      learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
      actor_id: of this actor.
      incarnation: identifies this incarnation of the actor.
      period: shortest time from a reply to the next fetch, in seconds.
      totals: returns the actor's totals since this incarnation started.
      set_params: receives (policy_version, params), params as NumPy arrays.
      template: parameters of the agent; their leaves have a shape and a dtype.
    """
    self._learner = learner
    self._identity = (lifecycle.run_token(), actor_id, incarnation)
    self._shortest = self._period = period
    self._totals = totals
    self._set_params = set_params
    self._template = template
    self._held: tuple[int, int] | None = None
    self._fetched = -math.inf  # By the monotonic clock.
    self._closed = threading.Event()
    self._thread: threading.Thread | None = None
    self._error: BaseException | None = None

  @property
  def due(self) -> bool:
    """Whether the next fetch is due; for nodes that fetch without the thread."""
    return time.monotonic() - self._fetched > self._period

  def fetch(self, should_stop: Callable[[], bool]) -> bool:
    """Fetches once and sets the parameters if they changed; returns False once training has finished.

    Args:
      should_stop: polled while waiting for the reply.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
      ValueError: if the learner's parameters are not those of the agent; one sentence.
    """

    def ask() -> Any:
      return self._learner.futures.fetch(self._held, *self._identity, tuple(self._totals()))

    finished, held, params, pause = rpc.call(ask, should_stop, 'fetch')
    self._period = max(self._shortest, pause)
    self._fetched = time.monotonic()
    if params is not None:
      self._set_params(held[1], serialisation.from_data(params, self._template))
      self._held = tuple(held)
    return not finished

  def start(self, check: Callable[[], None], end: Callable[[], None]) -> None:
    """Starts the fetching thread.

    Args:
      check: called before each fetch; an exception from it fails the thread.
      end: called when training has finished or the thread has failed.
    """
    self._thread = threading.Thread(
      target=self._run, args=(check, end), name='parameter-client', daemon=True
    )
    self._thread.start()

  def close(self) -> None:
    """Stops fetching and raises the error that failed the thread, if any."""
    self._closed.set()
    if self._thread is not None:
      self._thread.join(timeout=10.0)
    if self._error is not None:
      raise self._error

  def _run(self, check: Callable[[], None], end: Callable[[], None]) -> None:
    try:
      while not self._closed.wait(self._period):
        check()
        if not self.fetch(self._closed.is_set):
          break
    except lifecycle.Stopped:
      pass
    except BaseException as error:
      self._error = error
    finally:
      end()


def make_parameter_client(
  learner: Any, actor_id: str, period: float, acting: Acting, agent: Agent
) -> ParameterClient:
  """Returns the client of a node that acts, as a new incarnation of that node.

  Args:
    learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
    actor_id: the node's name.
    period: seconds from a reply to the next fetch.
    acting: receives the parameters and counts the steps.
    agent: whose parameters they are.
  """
  return ParameterClient(
    learner,
    actor_id,
    lifecycle.new_incarnation(),
    period,
    acting.totals,
    acting.set_params,
    shapes.params(agent),
  )
