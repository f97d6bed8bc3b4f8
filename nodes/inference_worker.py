"""Inference in a process of its own: actions with parameters that it fetches from the learner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment, describe
from nodes.inference.action_service import ActionService
from nodes.inference.layout import StreamSpec
from nodes.inference.socket_server import Inbox
from nodes.learning import replicas
from nodes.learning.parameter_client import VariableClient
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.counters import COUNTERS
from nodes.runtime.reporter import Reporter

_CHECK_SECONDS = 0.1


class InferenceNode:
  """Serves its actors until training has finished, and evaluators until the program stops.

  It listens from the beginning, so that actors connect while JAX compiles.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    streams: Sequence[StreamSpec],
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    port: int,
    name: str,
    watchers: Sequence[Any],
    actor_devices: Sequence[int],
    inference_batch_size: int,
    inference_timeout_ms: float,
    one_core: bool,
    num_environments: int,
    update_period: float,
    audit_dir: str,
    seed: Seed,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      streams: who will ask for actions.
      learner: Courier client of the learner.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      port: to listen on.
      name: of the node, such as 'inference/0'.
      watchers: clients of nodes that see unrolls go by. See `nodes.unrolls.observers`.
      actor_devices: indices into `jax.local_devices()`.
      inference_batch_size: environments in an inference batch at most.
      inference_timeout_ms: how long a request may wait for a fuller batch.
      one_core: whether what runs Python shares a core, where actor devices are CPUs.
      num_environments: training environments of the whole program.
      update_period: seconds between questions for newer parameters.
      audit_dir: where every unroll is recorded; '' for nowhere. See `rundir.audit`.
      seed: of action sampling, different for every node.

    Raises:
      OSError: if the port is in use.
    """
    self._inbox = Inbox(port)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._streams = streams
    self._learner = learner
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._name = name
    self._watchers = watchers
    self._actor_devices = actor_devices
    self._inference_batch_size = inference_batch_size
    self._inference_timeout = inference_timeout_ms / 1e3
    self._one_core = one_core
    self._num_environments = num_environments
    self._update_period = update_period
    self._audit_dir = audit_dir
    self._seed = seed

  def run(self) -> None:
    """Serves until the program stops."""
    self._stop = lifecycle.stop_event()
    with (
      contextlib.closing(self._inbox),
      contextlib.closing(self._make_service()) as service,
      contextlib.suppress(lifecycle.Stopped),
    ):
      self._serve(service)

  def _make_service(self) -> ActionService:
    spec, action_repeat = describe(self._make_environment)
    self._devices = replicas.local_devices(self._actor_devices, '--actor_devices')
    return ActionService(
      self._make_agent(spec.observations, spec.actions),
      spec,
      self._streams,
      self._devices,
      self._replay_addresses,
      counting.Counter(),
      action_repeat=action_repeat,
      batch_size=self._inference_batch_size,
      timeout=self._inference_timeout,
      seed=self._seed.child('life', lifecycle.life()),
      num_environments=self._num_environments,
      audit_dir=self._audit_dir,
      watchers=self._watchers,
      inbox=self._inbox,
    )

  def _serve(self, service: ActionService) -> None:
    variables = VariableClient(
      self._learner,
      self._name,
      lifecycle.new_incarnation(),
      self._update_period,
      service.server.totals,
      service.set_params,
    )

    def measure(seconds: float) -> dict[str, float]:
      # The learner counts, for all nodes that infer and all their lives.
      return {k: v for k, v in service.measure(seconds).items() if k not in COUNTERS}

    finished = threading.Event()
    reporter = Reporter(self._monitor, self._name, measure)
    with contextlib.closing(variables), reporter:
      activity.mark(activity.WAITING_FOR_PARAMETERS)
      if not variables.fetch(self._stop.is_set):
        finished.set()
      activity.mark(activity.COMPILING)
      service.compile()
      if self._one_core and self._devices[0].platform == 'cpu':
        affinity.share_a_core()  # The threads that matter are begun below.
      service.start()
      if not finished.is_set():
        variables.start(service.check, finished.set)
      while not finished.wait(_CHECK_SECONDS):
        activity.mark(activity.SERVING)
        reporter.maybe_report()
        if self._stop.is_set():
          return
      activity.mark(activity.IDLE)
      variables.close()
      service.finish_training()
      # Who evaluates is answered with the final parameters from now on.
      reporter.announce_finish({}, self._stop, service.check)
