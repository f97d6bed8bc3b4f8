"""Inference with fetched parameters, as a node that serves actors; IMPALA's actor has it inside."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment, describe
from nodes.inference.server import make_server
from nodes.inference.serving import Serving
from nodes.inference.socket_server import SocketServer
from nodes.learning import replicas
from nodes.learning.parameter_client import make_parameter_client
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.reporter import Reporter
from rundir.checkpoints import COUNTERS

_CHECK_SECONDS = 0.1


class FetchingInference:
  """An inference server in this process whose parameters are fetched from a learner.

  Attributes:
    server: the `nodes.inference.server.InferenceServer`.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    serving: Serving,
    learner: Any,
    replay_addresses: Sequence[str],
    name: str,
    update_period: float,
    devices: Sequence[jax.Device],
    inbox: SocketServer | None = None,
  ):
    """Makes the server, which acts from `start` on.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      serving: what the server serves.
      learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
      replay_addresses: host:port of each Reverb server.
      name: of the node.
      update_period: seconds between parameter fetches.
      devices: the actor devices.
      inbox: receives requests; None to serve only this process.
    """
    spec, action_repeat = describe(make_environment)
    agent = make_agent(spec.observations, spec.actions)
    self.server = make_server(
      serving,
      agent,
      devices,
      spec,
      action_repeat,
      replay_addresses=replay_addresses,
      inbox=inbox,
    )
    self._client = make_parameter_client(learner, name, update_period, self.server, agent)
    self._shares_a_core = serving.options.one_core and devices[0].platform == 'cpu'

  def fetch(self, should_stop: Callable[[], bool]) -> bool:
    """Fetches the first parameters; returns False if training has finished.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    activity.mark(activity.WAITING_FOR_PARAMETERS)
    return self._client.fetch(should_stop)

  def start(self, end: Callable[[], None] | None) -> None:
    """Compiles and serves; fetches in a thread, which calls `end` at the end of training.

    Args:
      end: see above; None to fetch no more.
    """
    activity.mark(activity.COMPILING)
    self.server.compile()
    if self._shares_a_core:
      affinity.share_a_core()  # Covers the threads started below.
    self.server.start()
    if end is not None:
      self._client.start(self.server.check, end)

  def stop_fetching(self) -> None:
    """Stops fetching, and raises the error that ended it, if any."""
    self._client.close()

  def close(self) -> None:
    """Stops serving and fetching; raises the error that ended the latter, if any."""
    self.server.close()
    self._client.close()


class InferenceNode:
  """Serves its actors until training has finished, and evaluators until the program stops.

  It listens from construction, so that actors connect while JAX compiles.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    serving: Serving,
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    port: int,
    name: str,
    update_period: float,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: as in `FetchingInference`, and so are the next four.
      make_environment: see above.
      serving: see above.
      learner: see above.
      replay_addresses: see above.
      monitor: Courier client of the monitor.
      port: to listen on.
      name: of the node, such as 'inference/0'.
      update_period: seconds between parameter fetches.

    Raises:
      OSError: if the port is in use.
    """
    self._inbox = SocketServer(port, shared_memory=serving.options.shared_memory)
    self._arguments = make_agent, make_environment, serving, learner, replay_addresses
    self._actor_devices = serving.options.actor_devices
    self._monitor, self._name, self._update_period = monitor, name, update_period

  def run(self) -> None:
    """Serves until the program stops."""
    activity.mark(activity.STARTING)
    self._stop = lifecycle.stop_event()
    with contextlib.closing(self._inbox), contextlib.suppress(lifecycle.Stopped):
      devices = replicas.local_devices(self._actor_devices, '--actor_devices')
      inference = FetchingInference(
        *self._arguments, self._name, self._update_period, devices, self._inbox
      )
      with contextlib.closing(inference):
        self._serve(inference)

  def _serve(self, inference: FetchingInference) -> None:
    server, finished = inference.server, threading.Event()

    def measure(seconds: float) -> dict[str, float]:
      # The learner sums the counters over all inference nodes and their incarnations.
      return {k: v for k, v in server.measure(seconds).items() if k not in COUNTERS}

    with Reporter(self._monitor, self._name, measure) as reporter:
      if inference.fetch(self._stop.is_set):
        inference.start(finished.set)
      else:
        finished.set()
        inference.start(None)
      while not finished.wait(_CHECK_SECONDS):
        activity.mark(activity.SERVING)
        server.check()
        reporter.maybe_report()
        if self._stop.is_set():
          return
      activity.mark(activity.IDLE)
      inference.stop_fetching()
      server.finish_training()
      # The server now has the final parameters, so the final evaluation may start.
      reporter.report_finished_until_stopped({}, self._stop, server.check)
