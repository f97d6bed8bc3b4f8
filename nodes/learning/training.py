"""Training to its end, with checkpoints and the final parameters, whatever a step of it is."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, Protocol

from absl import logging

from agents.types import Nest
from nodes.learning.checkpointer import Checkpointer, save_final_params
from nodes.runtime import activity, lifecycle
from nodes.runtime.options import RunOptions
from nodes.runtime.reporter import Reporter
from rundir import checkpoints


class Mixer(Protocol):
  """Mixes the parameters of a learner with those of others."""

  def mix(self, params: Nest, should_stop: Callable[[], bool]) -> Nest:
    """Returns the parameters that take the place of `params`, on the same devices.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """

  def fetch_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters and the parameters of another learner; None if none replies."""

  def measure(self) -> dict[str, float]:
    """Returns measurements to be reported."""

  def finish(self) -> None:
    """Ends the exchange with others; called once at the end of training."""


class Member(Protocol):
  """Makes a learner a member of a population; see `nodes.population.member`."""

  def played(self, steps: int, episodes: float, return_sum: float) -> None:
    """Counts what was played since the last call of it."""

  def diverge(self) -> None:
    """Notes that an update was not finite."""

  def exchange(self, learner: Any, counts: Mapping[str, int]) -> Any | None:
    """Returns the learner state to continue with, as NumPy arrays; None to continue with `learner`."""

  def finish(
    self, learner: Any, counts: Mapping[str, int], should_stop: Callable[[], bool]
  ) -> Any | None:
    """Ends the exchange with others, once training has ended; returns what `exchange` does.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """

  def repeat_end(self) -> futures.Future:
    """Reports the end again after `finish`, to a leaderboard that may have restarted; does not wait."""

  def measure(self) -> dict[str, float]:
    """Returns measurements to be reported."""


class Training(abc.ABC):
  """Trains until `num_steps`, then reports the end until the program stops.

  A subclass says what a step is, and restores and saves its state: `ReplayTraining` trains from replay,
  `CompiledTraining` by a compiled loop.
  """

  def __init__(
    self,
    name: str,
    run: RunOptions,
    learner_dir: str,
    monitor: Any,
    stop: threading.Event,
    *,
    mixer: Mixer | None = None,
    member: Member | None = None,
    writes: bool = True,
    report_period: float = 1.0,
  ):
    """Initialises the training; the subclass then compiles and restores its state.

    Args:
      name: of the node.
      run: when training ends, and what it saves.
      learner_dir: directory of the checkpoints and the final parameters.
      monitor: client of the monitor.
      stop: set when the program stops.
      mixer: changes the parameters after every step; None to keep them.
      member: reports the end to the leaderboard of a population; None for a learner that is alone.
      writes: whether to write checkpoints and final parameters, as one of several replicas does. The
        others save their state as well, which may take all of them.
      report_period: seconds between reports.
    """
    self._name, self._run_options, self._learner_dir = name, run, learner_dir
    self._stop, self._mixer, self._member, self._writes = stop, mixer, member, writes
    self._reporter = Reporter(monitor, name, self._measure, report_period)
    self._checkpointer: Checkpointer | None = None

  def run(self) -> None:
    """Trains, writes checkpoints and the final parameters, and reports the end."""
    run, finished = self._run_options, False
    self._checkpointer = checkpointer = Checkpointer(
      checkpoints.directory(self._learner_dir),
      run.checkpoint_period,
      run.checkpoints_kept,
      self._save,
      self._writes,
    )
    with self._reporter:
      try:
        while not self._is_trained():
          self._step()
          if self._after_step(checkpointer):
            checkpointer.begin()
        self._end_exchange()
        # Before the actors are stopped, so that a restarted learner does not need them again.
        checkpointer.write_now(self._should_stop)
        params = self._final_params()
        if self._writes:
          with activity.doing(activity.WRITING_CHECKPOINT):
            save_final_params(self._learner_dir, params, self._should_stop)
        finished = True
        further = self._finish(params)
        activity.mark(activity.IDLE)  # What serves has its own threads.
        summary = self._counts() | further  # Only now: actors step until they are stopped.
        repeat = self._member.repeat_end if self._member else None
        self._reporter.report_finished_until_stopped(
          summary, self._stop, self._check_service, repeat
        )
      except lifecycle.Stopped:
        with lifecycle.exit_held():
          self._stop_writing()
          if not finished:
            # If another replica no longer joins the last update, its state cannot be saved.
            with contextlib.suppress(lifecycle.Stopped):
              checkpointer.write_now()
        logging.info('stopped: %s', self._counts())

  @abc.abstractmethod
  def _counts(self) -> dict[str, int]:
    """Returns the run's counters."""

  @abc.abstractmethod
  def _is_trained(self) -> bool:
    """Returns whether `num_steps` are reached; called before every step."""

  @abc.abstractmethod
  def _step(self) -> None:
    """Does a learner step, or a call of the compiled loop.

    Raises:
      lifecycle.NonRetryableError: if an update is not finite.
      lifecycle.Stopped: if the program stops.
    """

  @abc.abstractmethod
  def _after_step(self, checkpointer: Checkpointer) -> bool:
    """Reports if that is due, and returns whether to begin a checkpoint.

    Raises:
      lifecycle.Stopped: if the program stops.
    """

  @abc.abstractmethod
  def _save(self) -> tuple[Mapping[str, float], Any]:
    """Returns the counters and the state of a checkpoint, as NumPy arrays."""

  @abc.abstractmethod
  def _final_params(self) -> Nest:
    """Returns the parameters as NumPy arrays."""

  @abc.abstractmethod
  def _measure(self, seconds: float) -> dict[str, float]:
    """Returns what is reported, for the last `seconds`."""

  def _end_exchange(self) -> None:
    """Ends the exchange with other learners; called before the end of training is written."""
    if self._mixer:
      self._mixer.finish()

  def _finish(self, params: Nest) -> dict[str, float]:
    """Called once all is written; returns what the summary has beside the counters."""
    del params
    return {}

  def _check_service(self) -> None:  # noqa: B027
    """Raises the error that stopped a service beside the training, if any."""

  def _stop_writing(self) -> None:  # noqa: B027
    """Stops writing unrolls, if any; called when the program stops, before the last checkpoint."""

  def _should_stop(self) -> bool:
    self._check_service()
    return self._stop.is_set()


def newest_checkpoint(learner_dir: str) -> checkpoints.Checkpoint | None:
  """Returns the newest checkpoint of a learner, if it has one."""
  directory = checkpoints.directory(learner_dir)
  checkpoint = checkpoints.newest(directory)
  if checkpoint is not None:
    logging.info('resuming from %s: %s', checkpoint.path, checkpoint.counts)
  else:
    logging.info('%s has no checkpoint yet: training starts with a new state', directory)
  return checkpoint
