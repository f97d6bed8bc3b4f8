"""Runs a sweep: launches its programs beside each other, records how they end, and stops them."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import sys
import threading
from collections.abc import Callable, Mapping
from signal import SIGINT
from typing import Any, TypeVar

from environments import entry
from launchers import guard, stop_requests, streams
from programs.options import early
from programs.options import flags as config_flags
from rundir import directory_lock, run_end, sweep_directory
from rundir.sweep_directory import DONE, FAILED, STOPPED, Outcome, Record
from sweeps import commands, prepare, report, table
from sweeps.commands import Command
from sweeps.metrics import UnknownMetricError
from sweeps.spec import Sweep
from sweeps.table import Row

_TICK_SECONDS = 0.1
_LAUNCH = str(commands.ROOT / 'launch.py')
_INVALID = 2
_RETRY_SECONDS = 1.0
T = TypeVar('T')


class _StoppedError(Exception):
  """The sweep was asked to stop while a file could not be written."""


@dataclasses.dataclass
class _Task:
  """A seed of a trial; trial 0 is the only one of a sweep over seeds alone."""

  trial: int
  values: Mapping[str, Any]
  seed: int
  run_dir: str

  @property
  def name(self) -> str:
    return table.name(self.trial, self.seed)


@dataclasses.dataclass
class _Running:
  task: _Task
  command: Command
  earlier: float  # Seconds of earlier commands.
  counted: float  # Of these, what counts towards the time_limit.
  too_long: bool = False

  def seconds(self) -> float:
    return self.earlier + self.command.seconds()

  def limited_seconds(self) -> float:
    return self.counted + self.command.seconds()


def run(
  sweep: Sweep, directory: str, record: Record, jobs: int, retry_failed: bool = False
) -> tuple[int, list[Row], str]:
  """Runs what has not ended yet; returns the exit code, the trials, best first, and a last sentence.

  Finished runs are kept. Others are resumed from their newest checkpoint, or begin again. SIGINT and
  SIGTERM stop the programs, which write checkpoints first; a second SIGINT kills them. While the record
  of a run cannot be written, as on a full disk, no run starts, and the write is retried.

  Args:
    sweep: the sweep.
    directory: of the sweep; this process has its lock.
    record: of the directory.
    jobs: how many programs run at once.
    retry_failed: whether runs that failed are run again.

  Returns:
    0 if every run has ended well, 1 if one failed, 2 if no run has the metric, 128 and the number of
    the signal that stopped it; the trials; and where their table is, or why it is out of date.
  """
  runner = _Runner(sweep, directory, record, retry_failed)
  code = runner.run(jobs)
  try:
    rows = report.write(sweep, directory, runner.trials)
    said = f'wrote {directory}/table.md'
  except OSError as error:
    rows = table.ranked(sweep, directory, runner.trials)
    said = f'warning: the table is out of date: {error}; the same command writes it'
  failed = any(row.failures(sweep.metric) for row in rows)
  return code or int(failed or runner.skipped), rows, said


class _Runner:
  """The state of `run`.

  Attributes:
    trials: numbers and flags, in the order of the search.
    skipped: whether a run was left out, because another command runs it.
  """

  def __init__(self, sweep: Sweep, directory: str, record: Record, retry_failed: bool):
    self._sweep = sweep
    self._directory = directory
    self._record = record
    self._retry_failed = retry_failed
    self._search = sweep.make_search()
    self._queue: collections.deque[_Task] = collections.deque()
    self._running: list[_Running] = []
    self._left: dict[int, set[int]] = {}  # Seeds by trial that have not ended.
    self._measured = False
    self._asked = stop_requests.StopRequests()
    self.trials: list[tuple[int, Mapping[str, Any]]] = []
    self.skipped = False
    for position in self._search.begin(record.trials):
      self._enqueue(prepare.number(sweep, position), record.trials[position])
    for task in [task for task in self._queue if self._settled(task)]:
      self._queue.remove(task)
      self._ended(task)

  def run(self, jobs: int) -> int:
    """Runs everything; returns the exit code, 0 if runs failed."""
    pause = threading.Event()
    the_guard = guard.Guard(sys.executable, entry.python_path())
    self._outlet = streams.Outlet()
    with stop_requests.collected() as asked:
      self._asked = asked
      try:
        with contextlib.suppress(_StoppedError):
          while not asked:
            while len(self._running) < jobs and (task := self._next()):
              self._start(task, the_guard.mark())
            if not self._running:
              return 0
            self._poll()
            pause.wait(_TICK_SECONDS)
        count = len(self._running)
        self._say(
          f'stopping {count} runs, which write checkpoints first; a second Ctrl-C kills them'
        )
        return stop_requests.EXIT_CODES[asked[0]]
      except UnknownMetricError as error:
        streams.say(f'error: {self._sweep.source}: {error}', sys.stderr)
        return _INVALID
      finally:
        self._stop()
        the_guard.close()
        self._outlet.close(streams.CLOSE_SECONDS)

  def _written(self, write: Callable[[], T]) -> T:
    """Returns what `write` returns; calls it again until it raises no OSError."""
    pause, said = threading.Event(), False
    while True:
      try:
        return write()
      except OSError as error:
        if not said:
          self._say(f'warning: {error}; the sweep waits until it can write')
          said = True
      if self._asked:
        raise _StoppedError
      pause.wait(_RETRY_SECONDS)

  def _next(self) -> _Task | None:
    """Returns the next run to start; None if there is none for now."""
    while not self._queue:
      values = self._search.next()
      if values is None:
        return None
      self._record.trials.append(dict(values))
      self._written(lambda: sweep_directory.write(self._directory, self._record))
      self._enqueue(prepare.number(self._sweep, len(self._record.trials) - 1), values)
      self._refuse_invalid(values)
    return self._queue.popleft()

  def _enqueue(self, trial: int, values: Mapping[str, Any]) -> None:
    self.trials.append((trial, values))
    self._left[trial] = set(self._sweep.seeds)
    for seed in self._sweep.seeds:
      run_dir = sweep_directory.run_dir(self._directory, trial, seed)
      self._queue.append(_Task(trial, values, seed, run_dir))

  def _refuse_invalid(self, values: Mapping[str, Any]) -> None:
    """Records a trial as failed if launch.py would refuse it; chosen ones are checked before."""
    if self._sweep.chosen:
      return
    try:
      prepare.job(self._sweep, values, self._sweep.seeds[0])
    except ValueError as error:
      for task in self._queue:
        self._conclude(task, Outcome(FAILED, str(error).rstrip('.')))
      self._queue.clear()

  def _settled(self, task: _Task) -> bool:
    """Returns whether a run has ended in an earlier command."""
    outcome = sweep_directory.outcome(task.run_dir)
    if outcome is not None and outcome.state == FAILED and not self._retry_failed:
      return True
    if not run_end.has_ended(task.run_dir):
      return False
    if outcome is None or outcome.state != DONE:  # This command's predecessor was killed.
      end = run_end.read_summary(task.run_dir) or run_end.end_of(task.run_dir) or {}
      made = Outcome(DONE, seconds=round(end.get('seconds', 0.0), 3))
      sweep_directory.write_outcome(task.run_dir, made)
    return True

  def _start(self, task: _Task, mark: int) -> None:
    if directory_lock.is_taken(task.run_dir):
      self._say(f'{task.name}: skipped, because another command runs {task.run_dir}')
      self.skipped = True
      return
    log = sweep_directory.log_path(task.run_dir)
    if not commands.resumable(task.run_dir) and not commands.unused(task.run_dir):
      outcome_path = sweep_directory.outcome_path(task.run_dir)
      aside = self._written(lambda: commands.set_aside(task.run_dir, log, outcome_path))
      self._say(
        f'{task.name}: begins again, without a checkpoint to resume from; {aside} has the rest'
      )
    words = self._sweep.command(task.values, task.seed)
    config_flags.define(*early.choice(words))
    recorded = config_flags.names() | {'program'}
    own: dict[bool, list[str]] = {True: [], False: []}
    for word in words:
      own[word.removeprefix('--').partition('=')[0] in recorded].append(word)
    target = commands.target(task.run_dir, own[True], own[False])
    outcome = sweep_directory.outcome(task.run_dir)
    earlier = outcome.seconds if outcome else 0.0
    counted = earlier if outcome and outcome.state == STOPPED else 0.0  # A failed run is run again.
    command = self._written(lambda: Command([_LAUNCH, *target], log, None))
    guard.put(mark, command.pid)
    self._running.append(_Running(task, command, earlier, counted))
    flags = prepare.flags_of(self._sweep, task.values)
    verb = 'resumes' if target[0].startswith('--resume=') else 'runs'
    self._say(' '.join(filter(None, [f'{task.name}: {verb}', flags])) + f', {task.run_dir}')

  def _poll(self) -> None:
    for running in list(self._running):
      if running.command.exit_code() is not None:
        self._running.remove(running)
        self._conclude(running.task, self._outcome(running))
      elif running.limited_seconds() > self._sweep.time_limit and not running.too_long:
        running.too_long = True
        running.command.stop()

  def _outcome(self, running: _Running, stopped: bool = False) -> Outcome:
    seconds, code = round(running.seconds(), 3), running.command.exit_code()
    if code == 0 and run_end.has_ended(running.task.run_dir):
      return Outcome(DONE, seconds=seconds)
    if running.too_long:
      limit = f'{self._sweep.time_limit:g}'
      return Outcome(FAILED, f'it was stopped after {limit} s, the time_limit', seconds)
    if stopped:
      return Outcome(STOPPED, seconds=seconds)
    said = running.command.last_words()
    return Outcome(FAILED, f'launch.py ended with exit code {code}: {said}', seconds)

  def _conclude(self, task: _Task, outcome: Outcome) -> None:
    """Records how a run ended, and prints it."""
    self._written(lambda: sweep_directory.write_outcome(task.run_dir, outcome))
    if outcome.state == FAILED:
      self._say(f'{task.name}: failed, {outcome.reason}')
    elif outcome.state == DONE:
      value = self._measure(task)
      shown = f'{self._sweep.metric.title} {value:.4g}'
      said = shown if math.isfinite(value) else f'failed, {table.no_value(self._sweep.metric)}'
      self._say(f'{task.name}: {said}, {outcome.seconds:.0f} s')
    self._ended(task)
    try:
      report.write(self._sweep, self._directory, self.trials, with_figure=False)
    except OSError as error:  # The next run that ends writes all of it.
      self._say(f'warning: the table is out of date: {error}')

  def _measure(self, task: _Task) -> float:
    """Returns the metric of a run; raises UnknownMetricError if no run has had it."""
    try:
      value = self._sweep.metric.read(task.run_dir)
    except UnknownMetricError:
      if not self._measured:
        raise
      return math.nan
    self._measured = True
    return value

  def _ended(self, task: _Task) -> None:
    """Tells the search the result of a trial once all its seeds have ended."""
    left = self._left[task.trial]
    left.discard(task.seed)
    if not left:
      (row,) = table.ranked(self._sweep, self._directory, [(task.trial, task.values)])
      # The mean of the seeds that did not fail would steer the search to values that are unstable.
      whole = row.valued == len(row.runs)
      mean = float(row.estimate.value) if row.estimate is not None and whole else None
      self._search.tell(task.values, mean)

  def _stop(self) -> None:
    """Stops the running programs and waits for their end."""
    pause = threading.Event()
    for running in self._running:
      running.command.stop()
    while any(running.command.exit_code() is None for running in self._running):
      if self._asked.count(SIGINT) > 1:
        for running in self._running:
          running.command.kill()
      pause.wait(_TICK_SECONDS)
    for running in self._running:
      made = self._outcome(running, stopped=True)
      try:
        sweep_directory.write_outcome(running.task.run_dir, made)
      except OSError as error:
        self._say(f'warning: the seconds of {running.task.name} are not recorded: {error}')
    self._running.clear()

  def _say(self, line: str) -> None:
    self._outlet.say(line)
