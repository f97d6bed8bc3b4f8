"""Training from replay to its end: what every node with a learner does, whatever else it serves."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from absl import logging
from acme import specs
from acme.utils import counting
from flax import serialization

from agents.agent import Agent
from agents.types import Nest
from environments.base import BatchedEnvironment, describe
from nodes.learning import replicas, serialisation
from nodes.learning.checkpointer import Checkpointer, save_final_params
from nodes.learning.options import TrainingOptions
from nodes.learning.update import Learner
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.reporter import Reporter
from nodes.runtime.stall import StallWarning
from nodes.unrolls import writer
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.packing import Columns
from rundir import audit, checkpoints


class ParameterConsumer(Protocol):
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


@dataclasses.dataclass(frozen=True)
class Prepared:
  """What a learner knows before it trains.

  Attributes:
    agent: the algorithm.
    environment_spec: of one environment.
    action_repeat: environment frames behind one actor step.
    counter: of the run; the service adds `actor_steps` and `environment_frames`.
    devices: learner devices of all replicas.
    checkpoint: the newest of the run; None if there is none, or another replica reads it.
    resumes: whether a replica has found a checkpoint.
    first_step: learner steps of that checkpoint, 0 without one.
    trained: whether training had ended by then.
  """

  agent: Agent
  environment_spec: specs.EnvironmentSpec
  action_repeat: int
  counter: counting.Counter
  devices: Sequence[jax.Device]
  checkpoint: checkpoints.Checkpoint | None
  resumes: bool
  first_step: int
  trained: bool


def prepare(
  make_agent: Callable[[specs.Array, specs.Array], Agent],
  make_environment: Callable[[int, int], BatchedEnvironment],
  options: TrainingOptions,
  coordinator: str | None = None,
) -> Prepared:
  """Joins the other replicas, and finds the checkpoint that training resumes from.

  Args:
    make_agent: builds the agent from the specs of observations and actions.
    make_environment: takes (number of environments, seed); used for its specs only.
    options: of training.
    coordinator: host:port at which replicas meet, on the machine of the first; None for one replica.
  """
  writer.begin_import()
  activity.mark(activity.STARTING)
  several = options.num_replicas > 1
  if coordinator is not None:
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      replicas.initialize(coordinator, options.replica, options.num_replicas)
  devices = replicas.devices_of_all(options.devices, '--learner_devices')
  if several:
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      replicas.warm_up_collectives(devices)
  spec, action_repeat = describe(make_environment)
  agent = make_agent(spec.observations, spec.actions)
  counter = counting.Counter()
  counter.increment(actor_steps=0, environment_frames=0, learner_steps=0)
  # The first replica reads it and sends it to the others.
  directory = checkpoints.directory(options.run_dir)
  checkpoint = checkpoints.newest(directory) if options.replica == 0 else None
  if checkpoint is not None:
    counter.increment(**checkpoint.counts)
    logging.info('going on from %s: %s', checkpoint.path, checkpoint.counts)
  counts = counter.get_counts()
  news = [
    int(checkpoint is not None),
    counts['learner_steps'],
    int(counts['actor_steps'] >= options.num_steps),
  ]
  if several:
    news = list(map(int, replicas.broadcast(np.array(news), options.replica)))
    if options.replica:
      counter.increment(learner_steps=news[1])
  resumes, first_step, trained = news
  return Prepared(
    agent,
    spec,
    action_repeat,
    counter,
    devices,
    checkpoint,
    bool(resumes),
    first_step,
    bool(trained),
  )


def train(
  prepared: Prepared,
  options: TrainingOptions,
  service: ParameterConsumer,
  replay_addresses: Sequence[str],
  monitor: Any,
  stop: threading.Event,
) -> None:
  """Trains until `num_steps`, then reports the end to the monitor until the program stops.

  Args:
    prepared: what `prepare` returned.
    options: of training.
    service: takes the parameters.
    replay_addresses: host:port of each Reverb server.
    monitor: client of the monitor.
    stop: set when the program stops.
  """
  _Training(prepared, options, service, replay_addresses, monitor, stop).run()


class _Training:
  """Training under way: writes checkpoints and the final parameters, reports, and ends."""

  def __init__(
    self,
    prepared: Prepared,
    options: TrainingOptions,
    service: ParameterConsumer,
    replay_addresses: Sequence[str],
    monitor: Any,
    stop: threading.Event,
  ):
    """Compiles, and begins to read from replay; `service` begins to answer."""
    self._prepared, self._options = prepared, options
    self._service, self._stop = service, stop
    self._counter = prepared.counter
    self._finished = False
    activity.mark(activity.COMPILING)
    self._learner = self._make_learner()
    service.compile()
    unroll = unroll_spec(prepared.agent, prepared.environment_spec)
    self._learner.compile(unroll, options.batch_size)
    from nodes.unrolls.reader import UnrollReader  # `prepare` has begun to import Reverb.

    self._reader = UnrollReader(
      replay_addresses, Columns(unroll), options.batch_size, max_in_flight=options.batch_size
    )
    self._checkpointer = Checkpointer(
      checkpoints.directory(options.run_dir),
      options.checkpoint_period if options.replica == 0 else 0.0,
      options.checkpoints_kept,
      self._save,
    )
    self._reporter = Reporter(monitor, options.name, self._measure)
    self._waiting = StallWarning(self._explain_wait)
    trained = audit.Audit(options.audit_dir, audit.TRAINED)
    if options.one_core and prepared.devices[0].platform == 'cpu':
      affinity.share_a_core()  # The threads that matter are begun below, XLA's are there already.
    self._learner.learn_from(self._reader, self._reader.update_priorities, trained.record)
    service.start()

  def run(self) -> None:
    """Trains to the end, then reports it until the program stops."""
    with self._reporter:
      try:
        while not self._prepared.trained and self._learner.actor_steps() < self._options.num_steps:
          self._learner.step()
          self._check()
          self._checkpointer.maybe_write()
        self._finish()
      except lifecycle.Stopped:
        if not self._finished:
          # Of an update that another replica will not join any more, nothing can be kept.
          with contextlib.suppress(lifecycle.Stopped):
            self._checkpointer.write_now()
        logging.info('stopped: %s', self._counter.get_counts())

  def _make_learner(self) -> Learner:
    prepared = self._prepared
    learner = Learner(
      prepared.agent,
      prepared.devices,
      self._service.set_params,
      self._check,
      self._counter,
      self._options.seed,
    )
    if prepared.resumes:
      state = learner.save()
      if prepared.checkpoint is not None:
        state = serialisation.restore(prepared.checkpoint, state)
      learner.restore(replicas.broadcast(state, self._options.replica))
    return learner

  def _finish(self) -> None:
    # On disk before the actors are told: a life that goes on from here is not to need them again.
    self._checkpointer.write_now()
    params = self._learner.get_variables(['params'])[0]
    if self._options.replica == 0:
      with activity.doing(activity.WRITING_CHECKPOINT):
        save_final_params(self._options.run_dir, params, self._should_stop)
    self._finished = True
    self._service.finish_training()
    crc = zlib.crc32(serialization.to_bytes(params))
    counts = self._counter.get_counts() | {'params_crc32': crc}
    activity.mark(activity.IDLE)  # What serves has threads of its own.
    self._reporter.report_finished_until_stopped(counts, self._stop, self._service.check)

  def _check(self) -> None:
    self._service.check()
    if self._stop.is_set():
      raise lifecycle.Stopped
    if (
      self._learner.learner_steps > self._prepared.first_step + 1
    ):  # The first report names the columns.
      self._reporter.maybe_report()
    self._waiting.check(self._learner.learner_steps)

  def _should_stop(self) -> bool:
    self._service.check()
    return self._stop.is_set()

  def _save(self) -> tuple[dict[str, int], Any]:
    counts = self._counter.get_counts()
    if self._options.num_replicas > 1:
      steps = max(counts['actor_steps'], self._learner.actor_steps())
      counts |= {'actor_steps': steps, 'environment_frames': steps * self._prepared.action_repeat}
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
