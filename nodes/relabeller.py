"""Copies unrolls from table to table, with fresh targets from the learner's newest parameters."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from acme import specs

from agents import compilation, shapes
from agents.agent import Agent
from agents.types import Array, Nest, Unroll
from environments.base import BatchedEnvironment, describe
from nodes.learning.options import RelabellingOptions
from nodes.learning.parameter_client import ParameterClient
from nodes.learning.prefetcher import DevicePrefetcher
from nodes.runtime import activity, lifecycle
from nodes.runtime.counters import ActingTotals
from nodes.runtime.rate import Rate
from nodes.runtime.reporter import Reporter
from nodes.runtime.stall import StallWarning
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.mixed_reader import make_reader
from nodes.unrolls.online_share import Quotas
from nodes.unrolls.packing import Columns
from nodes.unrolls.table_names import RELABELLED
from nodes.unrolls.writer import UnrollWriter
from rundir import audit

_POLL_SECONDS = 0.2


class Relabeller:
  """Reads unrolls, replaces their extras by `agent.relabel`, and writes the copies to `RELABELLED`.

  It works until training has finished. Between two batches it fetches the learner's parameters, if
  `update_period` has passed. It waits while the learner is unavailable, and while the table
  takes no copies.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    options: RelabellingOptions,
    update_period: float,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
      replay_addresses: host:port of each Reverb server.
      monitor: Courier client of the monitor.
      options: of relabelling.
      update_period: seconds between parameter fetches.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._options, self._update_period = options, update_period
    self._batch_size = options.batch_size
    self._seed = options.seed.child('restart', lifecycle.restart_count())
    self._learner = learner
    self._version, self._params = 0, None
    self._quotas = None
    if options.online_share is not None:
      self._quotas = Quotas(options.online_share, options.batch_size, lambda: self._version)
    self._relabelled, self._waited = 0, 0.0
    self._waited_before = 0.0
    self._rate = Rate()
    self._reporter = Reporter(monitor, options.name, self._measure)

  def run(self) -> None:
    """Relabels until training has finished or the program stops."""
    self._stop = lifecycle.stop_event()
    activity.mark(activity.STARTING)
    spec, _ = describe(self._make_environment)
    agent = self._make_agent(spec.observations, spec.actions)
    self._client = ParameterClient(
      self._learner,
      self._options.name,
      lifecycle.new_incarnation(),
      self._update_period,
      ActingTotals,  # Zeros, for it plays nothing.
      self._set_params,
      shapes.params(agent),
    )
    with self._reporter, contextlib.suppress(lifecycle.Stopped):
      self._check()  # Fetches the first parameters.
      self._relabel(agent, spec)
    activity.mark(activity.IDLE)

  def _keys(self, number: int) -> Array:
    """Returns the typed PRNG keys of batch `number` of this incarnation, `[B]`."""
    return jax.random.split(jax.random.fold_in(self._seed.key(), number), self._batch_size)

  def _relabel(self, agent: Agent, spec: specs.EnvironmentSpec) -> None:
    activity.mark(activity.COMPILING)
    sources = self._options.sources
    relabel = self._compile(agent, unroll_spec(agent, spec, sources[0].table))
    reader = make_reader(agent, spec, self._replay_addresses, sources, quotas=self._quotas)
    records = audit.Audit(self._options.audit_dir, audit.RELABELLED)
    origins: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()  # In the order of the copies.
    writer = UnrollWriter(
      self._replay_addresses,
      Columns(unroll_spec(agent, spec, RELABELLED)),
      compilation.on_cpu(agent.initial_priorities),
      lambda unroll_ids: records.record(unroll_ids, origins.get()),
      tables=(RELABELLED,),
    )
    writer.compile([self._batch_size])
    stalled = StallWarning(reader.explain_wait)

    def check() -> None:
      writer.check()
      self._check()

    def check_reading() -> None:
      check()
      stalled.check(self._relabelled)

    with contextlib.closing(writer):
      writer.start()
      batches = DevicePrefetcher(reader, lambda batch: (batch.unrolls, batch.unroll_ids))
      room = threading.Semaphore()  # For the batch that replay is to accept. The next waits here.
      for number in itertools.count():
        with self._waiting():
          unrolls, unroll_ids = batches.next(check_reading)
        activity.mark(activity.RELABELLING)
        extras = jax.device_get(relabel(self._params, unrolls, self._keys(number)))
        with self._waiting():
          while not room.acquire(timeout=_POLL_SECONDS):
            check()
        origins.put(unroll_ids)
        writer.put(unrolls._replace(extras=extras), room.release)
        self._relabelled += self._batch_size
        check()

  def _compile(self, agent: Agent, unroll: Unroll) -> Callable[..., dict[str, Array]]:
    """Compiles `agent.relabel` for a batch of unrolls of a structure."""
    batch = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct((self._batch_size, *x.shape), x.dtype), unroll
    )
    return jax.jit(agent.relabel).lower(self._params, batch, self._keys(0)).compile()

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
    self._version, self._params = version, jax.device_put(params)

  @contextlib.contextmanager
  def _waiting(self) -> Iterator[None]:
    """Marks and times a wait for replay."""
    started = time.monotonic()
    with activity.doing(activity.WAITING_FOR_REPLAY):
      yield
    self._waited += time.monotonic() - started

  def _measure(self, seconds: float) -> dict[str, float]:
    relabelled, waited = self._relabelled, self._waited
    waited_before, self._waited_before = self._waited_before, waited
    return {
      'unrolls_relabelled': float(relabelled),
      'relabelled_per_second': self._rate.measure(relabelled, seconds),
      'relabeller_waiting_share': (waited - waited_before) / seconds,
      'policy_version': float(self._version),
    } | self._measure_share()

  def _measure_share(self) -> dict[str, float]:
    if self._quotas is None:
      return {}
    online, offline = self._quotas.drawn
    return {'online_unrolls': float(online), 'offline_unrolls': float(offline)}
