"""Drill: a run of hours whose nodes are killed at random throughout."""

from __future__ import annotations

import csv
import dataclasses
import glob
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import IO, Any

import psutil

from benchmarks.drills import night_report, sampler, schedule
from benchmarks.drills.incarnations import Incarnation, Incarnations, Seen
from benchmarks.drills.subject import SLOW_CATCH
from benchmarks.running import RunningProgram
from rundir import audit, checkpoints

STEP_SECONDS = 0.1
ACTORS, ENVIRONMENTS = 2, 32
# An actor steps its two groups in turn.
STEPS_PER_SECOND = ACTORS * ENVIRONMENTS / 2 / STEP_SECONDS
# Longer than --node_timeout, to expose a watchdog that takes an idle evaluator for a silent one.
EVALUATION_SECONDS = 420
SAMPLE_SECONDS = 30.0
TICK_SECONDS = 1.0
SAY_SECONDS = 600.0
LAUNCHER = 'launcher'


def options(hours: float) -> list[str]:
  """Returns launch.py flags of a run that takes about `hours` undisturbed."""
  return [
    f'--env={SLOW_CATCH}',
    f'--env_options=step_seconds={STEP_SECONDS:g}',
    f'--num_actors={ACTORS}',
    f'--envs_per_actor={ENVIRONMENTS}',
    f'--num_steps={max(1, round(hours * 3600 * STEPS_PER_SECOND))}',
    f'--eval_period={round(EVALUATION_SECONDS * STEPS_PER_SECOND)}',
    '--audit',
  ]


def run(directory: str, hours: float, pause: float, seed: int, more: Sequence[str] = ()) -> bool:
  """Does the drill and prints its report; returns whether all checks hold.

  Writes to the directory: `run`, the run directory; `stdout.txt` and `stderr.txt` of launch.py;
  `processes.csv` with the resource use of every process; `kills.csv`; `report.md`; `report.json`.

  Args:
    directory: a new directory.
    hours: approximate duration of the run without kills.
    pause: mean seconds between kills.
    seed: seed of the kills.
    more: further flags for launch.py, which take precedence.

  Raises:
    ValueError: a time is not above 0, the directory already exists, or this system does not report
      the memory of processes.
  """
  if hours <= 0 or pause <= 0:
    raise ValueError(f'--hours={hours:g} and --pause={pause:g} must be above 0.')
  if not os.path.exists(f'/proc/self/{sampler.ROLLUP}'):
    raise ValueError(f'--hours needs /proc/PID/{sampler.ROLLUP}; run it on Linux 4.14 or newer.')
  try:
    os.makedirs(directory)
  except FileExistsError:
    raise ValueError(f'--directory={directory} exists already; name another.') from None
  directory = os.path.abspath(directory)
  run_dir = os.path.join(directory, 'run')
  flags = [f'--run_dir={run_dir}', *options(hours), *more]
  print(f'python launch.py {" ".join(flags)}', flush=True)
  program = RunningProgram(run_dir, *flags, output=directory, own_session=True)
  recorder = sampler.Recorder(os.path.join(directory, 'processes.csv'))
  seen = Seen()
  try:
    with open(os.path.join(directory, 'kills.csv'), 'x') as kills:
      _follow(program, seen, recorder, kills, _Plan(hours, pause, seed))
    if seen.interrupted:
      program.launcher.terminate()
    try:
      code, output, errors = program.end()
    except subprocess.TimeoutExpired:
      seen.interrupted += ', and the program did not stop'
      program.launcher.kill()
      code, output, errors = program.end()
  finally:
    recorder.close()
    program.kill()
  return night_report.write(directory, seen, code, output, errors, hours)


@dataclasses.dataclass(frozen=True)
class _Plan:
  hours: float
  pause: float
  seed: int

  def latest_end(self) -> float:
    """Returns the deadline of the run, in seconds."""
    return 1.6 * self.hours * 3600 + 1200


def _follow(
  program: RunningProgram, seen: Seen, recorder: sampler.Recorder, kills: IO[str], plan: _Plan
) -> None:
  """Samples and kills until the launcher ends or the drill gets a signal to stop."""
  launcher = psutil.Process(program.launcher.pid)
  writer = csv.writer(kills)
  writer.writerow(['seconds', 'node', 'pid', 'age'])
  began = time.monotonic()
  trained = _Growing(os.path.join(program.run_dir, 'audit', audit.TRAINED))
  final = os.path.join(program.run_dir, 'params', 'final.msgpack')
  due: Iterator[schedule.Due] | None = None
  next_kill = schedule.Due(0.0, '')
  killing_since = 0.0
  sampled = said = -SAMPLE_SECONDS
  try:
    while program.launcher.poll() is None:
      now = time.monotonic() - began
      nodes = program.nodes()
      for ended in seen.incarnations.see({name: p.pid for name, p in nodes.items()}, now):
        seen.surprises.append(f'{ended.node}, its incarnation {ended.number}, before {now:.0f} s')
      if not os.path.exists(final):
        seen.longest_pause = max(seen.longest_pause, trained.pause(now))
      if now >= sampled + SAMPLE_SECONDS:
        sampled = now
        _sample(recorder, {LAUNCHER: launcher, **nodes}, seen.incarnations, now)
      if now >= said + SAY_SECONDS:
        said = now
        print(
          f'{now / 60:.0f} min: {seen.kills} kills, {len(seen.surprises)} other ends', flush=True
        )
      if due is None and glob.glob(f'{glob.escape(checkpoints.directory(program.run_dir))}/*'):
        due = schedule.kills(plan.seed, plan.pause, list(nodes))
        next_kill, killing_since = next(due), now
      while due is not None and now - killing_since >= next_kill.at:
        if (victim := nodes.get(next_kill.node)) is not None:
          _kill(victim, seen, next_kill.node, now, writer)
          kills.flush()
        next_kill = next(due)
      if now > plan.latest_end():
        seen.interrupted = f'it had not ended after {now / 3600:.2f} h'
        return
      seen.hours = now / 3600
      time.sleep(TICK_SECONDS)
  except (KeyboardInterrupt, SystemExit):
    seen.interrupted = 'a signal stopped the drill'


def _kill(victim: psutil.Process, seen: Seen, node: str, now: float, writer: Any) -> None:
  incarnation = seen.incarnations.latest[node]
  if incarnation.pid != victim.pid or incarnation.killed is not None:
    return  # It is already down or restarting.
  try:
    victim.kill()  # psutil first checks that the id is still the same process.
  except psutil.NoSuchProcess:
    return
  incarnation.killed = now
  seen.kills += 1
  writer.writerow([f'{now:.1f}', node, victim.pid, f'{now - incarnation.began:.1f}'])


def _sample(
  recorder: sampler.Recorder,
  found: dict[str, psutil.Process],
  incarnations: Incarnations,
  now: float,
) -> None:
  for node, process in found.items():
    incarnation = incarnations.latest.get(node, Incarnation(node, 0, process.pid, 0.0))
    sample = sampler.take(process, node, incarnation.number, now, now - incarnation.began)
    if sample is not None:
      recorder.add(sample)


class _Growing:
  """A file that grows from time to time."""

  def __init__(self, path: str):
    self._path = path
    self._size = 0
    self._since: float | None = None

  def pause(self, now: float) -> float:
    """Returns the seconds since the file last grew; 0 before it exists."""
    size = os.path.getsize(self._path) if os.path.exists(self._path) else 0
    if size > self._size:
      self._size, self._since = size, now
    return now - self._since if self._since is not None else 0.0
