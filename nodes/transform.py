"""A node between tables of replay: it reads unrolls, changes them, and writes them to another table."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from acme import specs

from agents import compilation, shapes
from agents.agent import Agent
from agents.types import Nest, Unroll
from environments.base import BatchedEnvironment, describe
from nodes.learning.options import TransformOptions
from nodes.learning.parameter_client import ParameterClient
from nodes.learning.prefetcher import DevicePrefetcher
from nodes.runtime import activity, lifecycle
from nodes.runtime.counters import ActingTotals
from nodes.runtime.rate import Rate
from nodes.runtime.reporter import Reporter
from nodes.runtime.stall import StallWarning
from nodes.runtime.time_share import TimeShare
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.mixed_reader import make_reader
from nodes.unrolls.online_share import Quotas
from nodes.unrolls.packing import Columns
from nodes.unrolls.writer import UnrollWriter
from rundir import audit

_POLL_SECONDS = 0.2


class Transform:
  """Reads unrolls and writes what `transform` makes of them, until training has finished.

  A subclass defines `transform`. Between two batches the node fetches the learner's parameters, if
  `update_period` has passed. It waits while the learner is unavailable and while the table takes no
  unrolls, so that a full table holds back what fills the tables before it.

  Attributes:
    options: of the node.
    agent: the agent; there once `run` has begun, as are the next two.
    params: the learner's newest parameters, on the device.
    version: of these parameters, in learner steps.
  """

  agent: Agent
  params: Nest

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    options: TransformOptions,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      options: of the node.
    """
    self.options = options
    self.version = 0
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._learner = learner
    self._quotas = None
    if options.online_share is not None:
      self._quotas = Quotas(options.online_share, options.batch_size, lambda: self.version)
    self._written, self._waited = 0, TimeShare()
    self._rate = Rate()
    self._reporter = Reporter(monitor, options.name, self.measure)

  def prepare(self, unroll: Unroll) -> None:
    """Compiles what `transform` needs, once, before the first batch.

    Args:
      unroll: the shapes of one unroll, `jax.ShapeDtypeStruct`s `[L, ...]`.
    """

  def transform(self, unrolls: Unroll, number: int) -> Unroll:
    """Returns what is written in place of unrolls, on the host.

    Args:
      unrolls: fields are `[B, L, ...]`, with B = `options.batch_size`.
      number: of the batch, from 0 in this incarnation of the node.
    """
    raise NotImplementedError

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns what the node reports, for the time since its last report."""
    found = {
      'unrolls_written': float(self._written),
      'unrolls_per_second': self._rate.measure(self._written, seconds),
      'waiting_share': self._waited.measure(seconds),
      'policy_version': float(self.version),
    }
    if self._quotas is not None:
      online, offline = self._quotas.drawn
      found |= {'online_unrolls': float(online), 'offline_unrolls': float(offline)}
    return found

  def run(self) -> None:
    """Works until training has finished or the program stops."""
    self._stop = lifecycle.stop_event()
    activity.mark(activity.STARTING)
    spec, _ = describe(self._make_environment)
    self.agent = self._make_agent(spec.observations, spec.actions)
    self._client = ParameterClient(
      self._learner,
      self.options.name,
      lifecycle.new_incarnation(),
      self.options.update_period,
      ActingTotals,  # Zeros, for it plays nothing.
      self._set_params,
      shapes.params(self.agent),
    )
    with self._reporter, contextlib.suppress(lifecycle.Stopped):
      self._check()  # Fetches the first parameters.
      self._work(spec)
    activity.mark(activity.IDLE)

  def _work(self, spec: specs.EnvironmentSpec) -> None:
    activity.mark(activity.COMPILING)
    options, agent = self.options, self.agent
    self.prepare(unroll_spec(agent, spec, options.sources[0].table))
    reader = make_reader(agent, spec, self._replay_addresses, options.sources, quotas=self._quotas)
    records = audit.Audit(options.audit_dir, audit.RELABELLED)
    origins: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()  # In the order of the copies.
    writer = UnrollWriter(
      self._replay_addresses,
      Columns(unroll_spec(agent, spec, options.target)),
      compilation.on_cpu(agent.initial_priorities),
      lambda unroll_ids: records.record(unroll_ids, origins.get()),
      tables=(options.target,),
    )
    writer.compile([options.batch_size])
    stalled = StallWarning(reader.explain_wait)

    def check() -> None:
      writer.check()
      self._check()

    def check_reading() -> None:
      check()
      stalled.check(self._written)

    with contextlib.closing(writer):
      writer.start()
      batches = DevicePrefetcher(reader, lambda batch: (batch.unrolls, batch.unroll_ids))
      room = threading.Semaphore()  # For the batch that replay is to accept. The next waits here.
      for number in itertools.count():
        with self._waiting():
          unrolls, unroll_ids = batches.next(check_reading)
        activity.mark(activity.RELABELLING)
        made = self.transform(unrolls, number)
        with self._waiting():
          while not room.acquire(timeout=_POLL_SECONDS):
            check()
        origins.put(unroll_ids)
        writer.put(made, room.release)
        self._written += options.batch_size
        check()

  def _check(self) -> None:
    """Fetches and reports if due; raises lifecycle.Stopped at the end of training or of the program."""
    if self._stop.is_set():
      raise lifecycle.Stopped
    if self._client.due:
      with activity.doing(activity.WAITING_FOR_PARAMETERS):
        if not self._client.fetch(self._stop.is_set):
          raise lifecycle.Stopped
    self._reporter.maybe_report()

  def _set_params(self, version: int, params: Nest) -> None:
    self.version, self.params = version, jax.device_put(params)

  @contextlib.contextmanager
  def _waiting(self) -> Iterator[None]:
    """Marks and times a wait for replay."""
    with activity.doing(activity.WAITING_FOR_REPLAY), self._waited.counted():
      yield
