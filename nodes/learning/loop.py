"""Training from replay to its end: what every node with a learner does, whatever else it serves."""

from __future__ import annotations

import contextlib
import importlib
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Protocol

import numpy as np
from absl import logging
from acme import specs
from acme.utils import counting
from flax import serialization

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Nest
from environments.base import BatchedEnvironment, describe
from nodes.learning import replicas, serialisation
from nodes.learning.checkpointer import Checkpointer, save_final_params
from nodes.learning.update import Learner
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.reporter import Reporter
from nodes.runtime.stall import LongWait
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from rundir import audit, checkpoints


def begin_import() -> futures.Future:
  """Begins to import Reverb, and TensorFlow with it; returns the future of `nodes.unrolls.reader`.

  It takes about as long as all compilation, so a thread does it meanwhile.
  """
  return futures.ThreadPoolExecutor(1).submit(importlib.import_module, 'nodes.unrolls.reader')


class Service(Protocol):
  """What a node does with the parameters while it trains."""

  def set_params(self, version: int, params: Nest) -> None:
    """Takes parameters, on the learner devices; called after every learner step."""

  def compile(self) -> None:
    """Gets ready; the first parameters are there."""

  def start(self) -> None:
    """Begins to answer."""

  def check(self) -> None:
    """Raises what the service has failed with, if it has; called often."""

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns what to report."""

  def finish_training(self) -> None:
    """Tells the actors to stop. Evaluators go on being served."""


class Training:
  """Learns from replay until `num_steps` actor steps have been counted.

  Goes on from the newest checkpoint of the run, writes checkpoints and the final parameters, reports,
  and announces the end. First `prepare`, then `run`.

  Attributes, once prepared:
    agent: the algorithm.
    environment_spec: of one environment.
    action_repeat: environment frames behind one actor step.
    counter: of the run; somebody else adds `actor_steps` and `environment_frames`.
    first_step: learner steps of the checkpoint from which it goes on, 0 without one.
  """

  agent: Agent
  environment_spec: specs.EnvironmentSpec
  action_repeat: int
  counter: counting.Counter
  first_step: int

  def __init__(
    self,
    name: str,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    learner_devices: Sequence[int],
    batch_size: int,
    num_steps: int,
    run_dir: str,
    checkpoint_period: float,
    checkpoints_kept: int,
    record: bool,
    seed: Seed,
    replica: int = 0,
    num_replicas: int = 1,
    coordinator: str | None = None,
    one_core: bool = False,
  ):
    """Keeps its arguments.

    Args:
      name: of the node, such as 'learner/0'.
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      learner_devices: indices into `jax.local_devices()`.
      batch_size: unrolls in a learner batch, of each replica.
      num_steps: actor_steps, of all replicas, after which training ends.
      run_dir: where checkpoints and the final parameters go. If there is a checkpoint, the work goes
        on from the newest.
      checkpoint_period: seconds between checkpoints; 0 for none.
      checkpoints_kept: how many of them to keep.
      record: whether to record every unroll. See `rundir.audit`.
      seed: of the initial parameters; the same in all replicas.
      replica: which of the replicas this is; the first writes the parameters.
      num_replicas: whose learners do every update together.
      coordinator: host:port at which they meet, on the machine of the first.
      one_core: whether what runs Python shares a core, where learner devices are CPUs.
    """
    self._name = name
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._learner_devices = learner_devices
    self._batch_size = batch_size
    self._num_steps = num_steps
    self._run_dir = run_dir
    self._checkpoint_dir = checkpoints.directory(run_dir)
    self._checkpoint_period = checkpoint_period
    self._checkpoints_kept = checkpoints_kept
    self._record = record
    self._seed = seed
    self._replica = replica
    self._num_replicas = num_replicas
    self._coordinator = coordinator
    self._one_core = one_core
    self._finished = False

  @property
  def audit_dir(self) -> str:
    """Where unrolls are recorded; '' if they are not."""
    return self._run_dir if self._record else ''

  def prepare(self) -> None:
    """Joins the other replicas, and finds out what the run has done already."""
    self._importing = begin_import()
    activity.mark(activity.STARTING)
    if self._coordinator is not None:
      with activity.doing(activity.WAITING_FOR_REPLICAS):
        replicas.join(self._coordinator, self._replica, self._num_replicas)
    self._devices = replicas.devices_of_all(self._learner_devices, '--learner_devices')
    if self._num_replicas > 1:
      with activity.doing(activity.WAITING_FOR_REPLICAS):
        replicas.meet(self._devices)
    self.environment_spec, self.action_repeat = describe(self._make_environment)
    self.agent = self._make_agent(self.environment_spec.observations, self.environment_spec.actions)
    self.counter = counting.Counter()
    self.counter.increment(actor_steps=0, environment_frames=0, learner_steps=0)
    # The first replica reads it, the others have it from there.
    self._checkpoint = checkpoints.newest(self._checkpoint_dir) if self._replica == 0 else None
    if self._checkpoint is not None:
      self.counter.increment(**self._checkpoint.counts)
      logging.info('going on from %s: %s', self._checkpoint.path, self._checkpoint.counts)
    counts = self.counter.get_counts()
    news = [
      int(self._checkpoint is not None),
      counts['learner_steps'],
      int(counts['actor_steps'] >= self._num_steps),
    ]
    if self._num_replicas > 1:
      news = list(map(int, replicas.share(np.array(news), self._replica)))
      if self._replica:
        self.counter.increment(learner_steps=news[1])
    self._goes_on, self.first_step, self._trained_already = news

  def run(self, service: Service, stop: threading.Event) -> None:
    """Trains to the end, and then says so until the program stops.

    Args:
      service: of this node.
      stop: set when the program stops.
    """
    self._service, self._stop = service, stop
    activity.mark(activity.COMPILING)
    self._learner = self._make_learner()
    service.compile()
    unroll = unroll_spec(self.agent, self.environment_spec)
    self._learner.compile(unroll, self._batch_size)
    reader = self._importing.result()
    self._reader = reader.UnrollReader(
      self._replay_addresses,
      Columns(unroll),
      self._batch_size,
      max_in_flight=self._batch_size,
    )
    period = self._checkpoint_period if self._replica == 0 else 0.0
    self._checkpointer = Checkpointer(
      self._checkpoint_dir, period, self._checkpoints_kept, self._save
    )
    self._reporter = Reporter(self._monitor, self._name, self._measure)
    self._waiting = LongWait(self._explain_wait)
    trained = audit.Audit(self.audit_dir, audit.TRAINED)
    if self._one_core and self._devices[0].platform == 'cpu':
      affinity.share_a_core()  # The threads that matter are begun below, XLA's are there already.
    self._learner.learn_from(self._reader, self._reader.update_priorities, trained.record)
    service.start()
    with self._reporter:
      try:
        while not self._trained_already and self._learner.actor_steps() < self._num_steps:
          self._learner.step()
          self._check()
          self._checkpointer.maybe_write()
        self._finish()
      except lifecycle.Stopped:
        if not self._finished:
          # Of an update that another replica will not join any more, nothing can be kept.
          with contextlib.suppress(lifecycle.Stopped):
            self._checkpointer.write_now()
        logging.info('stopped: %s', self.counter.get_counts())

  def _make_learner(self) -> Learner:
    learner = Learner(
      self.agent, self._devices, self._service.set_params, self._check, self.counter, self._seed
    )
    if self._goes_on:
      state = learner.save()
      if self._checkpoint is not None:
        state = serialisation.restore(self._checkpoint, state)
      learner.restore(replicas.share(state, self._replica))
    return learner

  def _finish(self) -> None:
    # On disk before the actors are told: a life that goes on from here is not to need them again.
    self._checkpointer.write_now()
    params = self._learner.get_variables(['params'])[0]
    if self._replica == 0:
      with activity.doing(activity.WRITING_CHECKPOINT):
        save_final_params(self._run_dir, params, self._should_stop)
    self._finished = True
    self._service.finish_training()
    crc = zlib.crc32(serialization.to_bytes(params))
    counts = self.counter.get_counts() | {'params_crc32': crc}
    activity.mark(activity.IDLE)  # What serves has threads of its own.
    self._reporter.announce_finish(counts, self._stop, self._service.check)

  def _check(self) -> None:
    self._service.check()
    if self._stop.is_set():
      raise lifecycle.Stopped
    if self._learner.learner_steps > self.first_step + 1:  # The first report names the columns.
      self._reporter.maybe_report()
    self._waiting.check(self._learner.learner_steps)

  def _should_stop(self) -> bool:
    self._service.check()
    return self._stop.is_set()

  def _save(self) -> tuple[dict[str, int], Any]:
    counts = self.counter.get_counts()
    if self._num_replicas > 1:
      steps = max(counts['actor_steps'], self._learner.actor_steps())
      counts |= {'actor_steps': steps, 'environment_frames': steps * self.action_repeat}
    return counts, self._learner.save()

  def _measure(self, seconds: float) -> dict[str, float]:
    return (
      self._service.measure(seconds)
      | self._learner.measure(seconds)
      | self._reader.measure()
      | {'checkpoint_failures': float(self._checkpointer.failures)}
    )

  def _explain_wait(self) -> str:
    if self._learner.waits_for_replicas:
      return 'an update waits for another replica.'
    return self._reader.explain_wait()
