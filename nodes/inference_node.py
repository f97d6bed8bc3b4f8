"""Stand-alone inference: serves actors with parameters fetched from the learner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment, describe
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.inference.server import InferenceServer, make_server
from nodes.inference.socket_server import SocketServer
from nodes.learning import replicas
from nodes.learning.parameter_client import make_parameter_client
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.reporter import Reporter
from nodes.unrolls.options import UnrollSinks
from rundir.checkpoints import COUNTERS

_CHECK_SECONDS = 0.1


class InferenceNode:
  """Serves its actors until training has finished, and evaluators until the program stops.

  It listens from construction, so that actors connect while JAX compiles.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    env_groups: Sequence[EnvGroupSpec],
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    port: int,
    name: str,
    options: InferenceOptions,
    seed: Seed,
    num_environments: int,
    sinks: UnrollSinks,
    update_period: float,
    observers: Sequence[Any] = (),
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      env_groups: the environment groups to serve.
      learner: Courier client of the learner.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      port: to listen on.
      name: of the node, such as 'inference/0'.
      options: of inference.
      seed: of action sampling; each node has a different one.
      num_environments: training environments of the whole program.
      sinks: where the unrolls are written.
      update_period: seconds between parameter fetches.
      observers: clients of nodes that observe the unrolls. See `nodes.unrolls.observers`.

    Raises:
      OSError: if the port is in use.
    """
    self._inbox = SocketServer(port, shared_memory=options.shared_memory)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._env_groups = env_groups
    self._learner = learner
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._name = name
    self._options, self._seed, self._num_environments = options, seed, num_environments
    self._sinks = sinks
    self._update_period = update_period
    self._observers = observers

  def run(self) -> None:
    """Serves until the program stops."""
    activity.mark(activity.STARTING)
    self._stop = lifecycle.stop_event()
    with (
      contextlib.closing(self._inbox),
      contextlib.closing(self._make_server()) as server,
      contextlib.suppress(lifecycle.Stopped),
    ):
      self._serve(server)

  def _make_server(self) -> InferenceServer:
    spec, action_repeat = describe(self._make_environment)
    self._agent = agent = self._make_agent(spec.observations, spec.actions)
    self._devices = replicas.local_devices(self._options.actor_devices, '--actor_devices')
    return make_server(
      self._options,
      agent,
      self._env_groups,
      self._devices,
      spec,
      action_repeat,
      seed=self._seed,
      num_environments=self._num_environments,
      replay_addresses=self._replay_addresses,
      sinks=self._sinks,
      observers=self._observers,
      inbox=self._inbox,
    )

  def _serve(self, server: InferenceServer) -> None:
    client = make_parameter_client(
      self._learner, self._name, self._update_period, server, self._agent
    )

    def measure(seconds: float) -> dict[str, float]:
      # The learner sums the counters over all inference nodes and their incarnations.
      return {k: v for k, v in server.measure(seconds).items() if k not in COUNTERS}

    finished = threading.Event()
    reporter = Reporter(self._monitor, self._name, measure)
    with contextlib.closing(client), reporter:
      activity.mark(activity.WAITING_FOR_PARAMETERS)
      if not client.fetch(self._stop.is_set):
        finished.set()
      activity.mark(activity.COMPILING)
      server.compile()
      if self._options.one_core and self._devices[0].platform == 'cpu':
        affinity.share_a_core()  # Covers the threads started below.
      server.start()
      if not finished.is_set():
        client.start(server.check, finished.set)
      while not finished.wait(_CHECK_SECONDS):
        activity.mark(activity.SERVING)
        server.check()
        reporter.maybe_report()
        if self._stop.is_set():
          return
      activity.mark(activity.IDLE)
      client.close()
      server.finish_training()
      # The server now has the final parameters, so the final evaluation may start.
      reporter.report_finished_until_stopped({}, self._stop, server.check)
