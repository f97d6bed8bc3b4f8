"""Training from replay, of every node with a learner."""

from __future__ import annotations

import dataclasses
import functools
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np
from acme import specs
from acme.utils import counting
from flax import serialization

from agents.agent import Agent
from agents.types import Nest
from environments.base import BatchedEnvironment, describe
from nodes.learning import replicas, serialisation, warm_start
from nodes.learning.checkpointer import Checkpointer
from nodes.learning.options import TrainingOptions
from nodes.learning.training import Member, Mixer, Training, newest_checkpoint
from nodes.learning.update import Learner
from nodes.runtime import activity, affinity, lifecycle
from nodes.runtime.counters import ActingTotals
from nodes.runtime.stall import StallWarning
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.mixed_reader import make_reader
from rundir import audit, checkpoints, saved_params


class ParameterConsumer(Protocol):
  """Receives the parameters of a training node and serves them or acts with them."""

  def set_params(self, version: int, params: Nest) -> None:
    """Receives parameters, on the learner devices; called after every learner step."""

  def compile(self) -> None:
    """Compiles; called once the first parameters are set."""

  def start(self) -> None:
    """Starts to serve requests."""

  def check(self) -> None:
    """Raises the error that stopped the service, if any, or TimeoutError if it hangs; called often."""

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns measurements over the last `seconds`, to be reported."""

  def totals(self) -> ActingTotals:
    """Returns the steps and episodes of the actors since the start."""

  def finish_training(self) -> None:
    """Stops the actors; the service continues for evaluators."""

  def stop_writing(self) -> None:
    """Stops writing unrolls, if any; called when the program stops."""


@dataclasses.dataclass(frozen=True)
class Prepared:
  """The state of a learner before training starts.

  Attributes:
    agent: the algorithm.
    environment_spec: of one environment.
    action_repeat: environment frames per actor step.
    counter: of the run; the service adds `actor_steps` and `environment_frames`.
    devices: learner devices of all replicas.
    checkpoint: the newest of the run; None without one, or if another replica reads it.
    restores: whether the first replica restores a state: of a checkpoint, or with the parameters that
      the run begins with.
    first_step: learner steps of that checkpoint; 0 without one.
    trained: whether that checkpoint is of finished training.
  """

  agent: Agent
  environment_spec: specs.EnvironmentSpec
  action_repeat: int
  counter: counting.Counter
  devices: Sequence[jax.Device]
  checkpoint: checkpoints.Checkpoint | None
  restores: bool
  first_step: int
  trained: bool


def prepare(
  make_agent: Callable[[specs.Array, specs.Array], Agent],
  make_environment: Callable[[int, int], BatchedEnvironment],
  options: TrainingOptions,
  coordinator: str | None = None,
) -> Prepared:
  """Joins the other replicas and finds the checkpoint to resume from.

  Args:
    make_agent: builds the agent from the specs of observations and actions.
    make_environment: takes (number of environments, seed); used for its specs only.
    options: of training.
    coordinator: host:port of the JAX coordinator, on the first replica's machine; None for one replica.
  """
  activity.mark(activity.STARTING)
  several = options.num_replicas > 1
  if coordinator is not None:
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      replicas.initialize(coordinator, options.replica, options.num_replicas)
  devices = replicas.devices_of_all(options.learning.learner_devices, '--learner_devices')
  if several:
    with activity.doing(activity.WAITING_FOR_REPLICAS):
      replicas.warm_up_collectives(devices)
  spec, action_repeat = describe(make_environment)
  agent = make_agent(spec.observations, spec.actions)
  counter = counting.Counter()
  counter.increment(actor_steps=0, environment_frames=0, learner_steps=0)
  # The first replica reads the checkpoint and broadcasts it to the others.
  run_dir = options.run.run_dir
  checkpoint = newest_checkpoint(options.learner_dir) if options.replica == 0 else None
  counts = dict(checkpoint.counts) if checkpoint is not None else {}
  actor_steps = int(counts.get('actor_steps', 0))
  news = [
    int(checkpoint is not None or (options.replica == 0 and saved_params.has_initial(run_dir))),
    int(counts.get('learner_steps', 0)),
    int(actor_steps >= options.run.num_steps),
    *divmod(actor_steps, 1 << 30),  # Broadcast as int32.
  ]
  if several:
    news = list(map(int, replicas.broadcast(np.array(news), options.replica)))
    # Each replica continues with its share of the steps, whatever their number was before.
    steps = replicas.share((news[3] << 30) + news[4], options.replica, options.num_replicas)
    counts = {'actor_steps': steps, 'environment_frames': steps * action_repeat}
    counts['learner_steps'] = news[1]
  counter.increment(**counts)
  restores, first_step, trained = news[:3]
  return Prepared(
    agent,
    spec,
    action_repeat,
    counter,
    devices,
    checkpoint,
    bool(restores),
    first_step,
    bool(trained),
  )


class ReplayTraining(Training):
  """Trains from replay, with a service that acts or serves the parameters meanwhile."""

  def __init__(
    self,
    prepared: Prepared,
    options: TrainingOptions,
    service: ParameterConsumer,
    replay_addresses: Sequence[str],
    monitor: Any,
    stop: threading.Event,
    mixer: Mixer | None = None,
    member: Member | None = None,
  ):
    """Compiles, starts to read from replay, and starts `service`.

    Args:
      prepared: the result of `prepare`.
      options: of training.
      service: receives the parameters.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      stop: set when the program stops.
      mixer: changes the parameters after every learner step; None to keep them.
      member: lets the learner continue as another one of a population has; None for one that is alone.
        Its updates may be not finite: then it keeps the parameters before them.
    """
    directory, writes = options.learner_dir, options.replica == 0
    super().__init__(
      options.name, options.run, directory, monitor, stop, mixer=mixer, member=member, writes=writes
    )
    self._prepared, self._options, self._service = prepared, options, service
    self._played = ActingTotals()
    activity.mark(activity.COMPILING)
    self._reporter.count(self._counts())
    self._learner = self._make_learner()
    service.compile()
    specs_of = prepared.agent, prepared.environment_spec
    self._learner.compile(unroll_spec(*specs_of, options.batch_parts[0].table), options.batch_size)
    self._reader = make_reader(
      *specs_of,
      replay_addresses,
      options.batch_parts,
      options.unrolls_per_item,
      max_in_flight=options.max_in_flight,
    )
    self._waiting = StallWarning(self._explain_wait)
    trained = audit.Audit(options.audit_dir, audit.TRAINED)
    if options.one_core and prepared.devices[0].platform == 'cpu':
      affinity.share_a_core()  # Covers the threads started below; XLA's already run on all cores.
    self._learner.learn_from(self._reader, self._reader.update_priorities, trained.record)
    service.start()

  def _make_learner(self) -> Learner:
    prepared, mix, steps = self._prepared, None, self._options.steps_per_update
    if self._mixer:
      mix = functools.partial(self._mixer.mix, should_stop=self._stop.is_set)
    learner = Learner(
      prepared.agent,
      prepared.devices,
      self._service.set_params,
      self._check,
      prepared.counter,
      self._options.seed,
      mix,
      counted={'actor_steps': steps, 'environment_frames': steps * prepared.action_repeat},
      follow=self._follow if self._member else None,
    )
    if prepared.restores:
      state = learner.save()
      if prepared.checkpoint is not None:
        state = serialisation.restore(prepared.checkpoint, state)
      elif self._options.replica == 0:
        state = warm_start.with_initial_params(prepared.agent, state, self._options.run.run_dir)
      learner.restore(replicas.broadcast(state, self._options.replica))
    return learner

  def _counts(self) -> dict[str, int]:
    return self._prepared.counter.get_counts()

  def _is_trained(self) -> bool:
    return self._prepared.trained or self._learner.actor_steps() >= self._options.run.num_steps

  def _step(self) -> None:
    self._learner.step()

  def _follow(self, learner: Any, finite: bool) -> Any | None:
    """Returns the learner state that the population asks for after a step; see `Learner`."""
    assert self._member is not None
    totals = self._service.totals()
    new, self._played = totals.minus(self._played), totals
    self._member.played(int(new.actor_steps), new.episodes, new.return_sum)
    if not finite:
      self._member.diverge()
    return self._member.exchange(learner, self._counts())

  def _end_exchange(self) -> None:
    super()._end_exchange()
    if self._member:
      found = self._member.finish(self._learner.save(), self._counts(), self._should_stop)
      if found is not None:
        self._learner.restore(found)

  def _after_step(self, checkpointer: Checkpointer) -> bool:
    self._check()
    return checkpointer.due()

  def _check(self) -> None:
    self._service.check()
    if self._stop.is_set():
      raise lifecycle.Stopped
    # The first report names the columns of the log, and only an update has all measurements.
    if self._learner.learner_steps > self._prepared.first_step + 1:
      self._reporter.maybe_report()
    else:
      self._reporter.maybe_count(self._counts())
    self._waiting.check(self._learner.learner_steps)

  def _check_service(self) -> None:
    self._service.check()

  def _save(self) -> tuple[dict[str, int], Any]:
    counts = self._counts()
    if self._options.num_replicas > 1:
      # Before the first update the other replicas have not said how many steps they have.
      restored = self._prepared.checkpoint.counts if self._prepared.checkpoint else counts
      steps = int(max(restored['actor_steps'], self._learner.actor_steps()))
      counts |= {'actor_steps': steps, 'environment_frames': steps * self._prepared.action_repeat}
    return counts, self._learner.save()

  def _final_params(self) -> Nest:
    return self._learner.get_variables(['params'])[0]

  def _finish(self, params: Nest) -> dict[str, float]:
    self._service.finish_training()
    return {'params_crc32': zlib.crc32(serialization.to_bytes(params))}

  def _stop_writing(self) -> None:
    self._service.stop_writing()

  def _measure(self, seconds: float) -> dict[str, float]:
    failures = self._checkpointer.failures if self._checkpointer else 0
    return (
      self._service.measure(seconds)
      | self._learner.measure(seconds)
      | self._reader.measure()
      | (self._mixer.measure() if self._mixer else {})
      | (self._member.measure() if self._member else {})
      | {'checkpoint_failures': float(failures)}
    )

  def _explain_wait(self) -> str:
    if self._learner.sync.waiting:
      return 'an update waits for another replica.'
    return self._reader.explain_wait()
