"""The sections of the benchmark of a GPU: each launches programs, and follows them from outside.

A section reads its own time: it stops what it has launched before its end, and reports what it has by
then. What it reports is written at once, so that a section that is killed has its results so far.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from benchmarks.running import ROOT, RunningProgram
from rundir import curves, files
from rundir.roles import LEARNER

_POLL_SECONDS = 0.5
# Training episodes of which a return is the mean, at least.
_EPISODES = 20
_SHELL_SECONDS = 60.0


class Skipped(Exception):
  """A section does not apply here; the message is the reason."""


@dataclasses.dataclass
class Section:
  """What a section has: its time, a directory, the device, and its results.

  Attributes:
    seconds: after which it should have ended, from now.
    path: the file of its results; names beside it are free.
    gpu: whether programs run on the GPU; on CPUs all sizes are tiny.
    results: what it has reported so far.
  """

  seconds: float
  path: str
  gpu: bool
  results: dict[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    self._end = time.monotonic() + self.seconds

  @property
  def left(self) -> float:
    """Seconds until the end."""
    return self._end - time.monotonic()

  def report(self, **values: Any) -> None:
    """Adds results, and writes all of them."""
    self.results |= values
    files.write_json(self.path, self.results)

  def size(self, on_gpu: Any, on_cpus: Any) -> Any:
    """Returns the first for a measurement and the second for a dry run."""
    return on_gpu if self.gpu else on_cpus

  @contextlib.contextmanager
  def program(self, name: str, **flags: Any) -> Iterator[_Followed]:
    """Launches a program without evaluator; kills it in the end.

    Args:
      name: of the launch, in the results; its run directory is beside them.
      **flags: flags of launch.py; `resume` is the name of the launch to resume, and the only one.
    """
    run_dir = f'{self.path.removesuffix(".json")}-{flags.get("resume", name)}'
    common = {'run_dir': run_dir, 'eval_envs': 0, **({'accelerator': 'gpu'} if self.gpu else {})}
    given = {'resume': run_dir} if flags.get('resume') else {**common, **flags}
    words = [f'--{key}={value}' for key, value in given.items()]
    launched = RunningProgram(run_dir, *words, deadline=max(self.left, 1.0))
    try:
      yield _Followed(self, name, launched, ' '.join(words))
    finally:
      launched.kill()


class _Followed:
  """A launched program, its rate, its return, and the memory that it uses."""

  def __init__(self, section: Section, name: str, program: RunningProgram, words: str):
    self._section, self._name, self._program = section, name, program
    self._started = time.monotonic()
    self._known = len(self._rows())
    self.found: dict[str, Any] = {'flags': words}

  def follow(self, done: Callable[[dict[str, Any]], bool] = lambda found: False) -> dict[str, Any]:
    """Watches the program until `done`, the end of the section or its own; reports what it saw.

    Returns:
      flags: as launched.
      seconds: since the command.
      seconds_to_first_report: until the learner reports a learner step of this launch.
      actor_steps: of the run, by its last report.
      steps_per_second, frames_per_second: from the first report of this launch to the last.
      episode_return, best_return: means over the last training episodes, 20 of them or more.
      gpu_memory_mib: the most that nvidia-smi reported, of all processes.
      own_memory_mib: the most that the nodes had for themselves.

    Raises:
      RuntimeError: the program failed; the end of its errors.
    """
    found = self.found
    while True:
      over = self._program.launcher.poll()
      self._look()
      self._section.report(**{self._name: found})
      if done(found) or over == 0:
        return found
      if over is not None:
        raise RuntimeError(self._program.end()[2][-1500:] or f'launch.py ended with {over}')
      if self._section.left <= 0:
        self._section.report(cut=True)
        return found
      time.sleep(_POLL_SECONDS)

  def stop(self) -> float:
    """Asks the program to end as Ctrl-C does, with a checkpoint; returns the seconds that it took.

    Raises:
      TimeoutExpired: it had not ended by the end of the section.
    """
    started = time.monotonic()
    self._program.launcher.send_signal(signal.SIGINT)
    self._program.launcher.wait(max(self._section.left, 1.0))
    return time.monotonic() - started

  def _rows(self) -> list[tuple[float, ...]]:
    names = ('seconds', 'actor_steps', 'environment_frames', 'learner_steps')
    run_dir = self._program.run_dir
    learners = curves.nodes(run_dir, LEARNER)[:1] if os.path.isdir(run_dir) else []
    return [row for node in learners for row in curves.read(run_dir, node, *names) if row[3] > 0]

  def _look(self) -> None:
    found, now = self.found, time.monotonic() - self._started
    found['seconds'] = now
    rows = self._rows()[self._known :]
    if rows:
      found.setdefault('seconds_to_first_report', now)
      found['actor_steps'] = rows[-1][1]
      if len(rows) > 1:
        taken = rows[-1][0] - rows[0][0]
        for place, name in ((1, 'steps_per_second'), (2, 'frames_per_second')):
          found[name] = (rows[-1][place] - rows[0][place]) / taken
      value, episodes = curves.last_training_return(self._program.run_dir, _EPISODES)
      if episodes >= _EPISODES and math.isfinite(value):
        found['episode_return'] = value
        found['best_return'] = max(value, found.get('best_return', value))
    memory = {'own_memory_mib': _own_memory(self._program)}
    if self._section.gpu:
      memory['gpu_memory_mib'] = gpu_memory()
    for name, mib in memory.items():
      found[name] = max(mib, found.get(name, 0.0))


def _own_memory(program: RunningProgram) -> float:
  """Returns the MiB that the nodes have for themselves; those that end meanwhile have none."""
  total = 0
  for node in program.nodes().values():
    with contextlib.suppress(psutil.Error):
      total += node.memory_full_info().uss
  return total / 2**20


def gpu_memory() -> float:
  """Returns the MiB in use on all GPUs, by nvidia-smi."""
  command = ['nvidia-smi', '--query-gpu=memory.used', '--format=csv,noheader,nounits']
  done = subprocess.run(command, capture_output=True, text=True, timeout=_SHELL_SECONDS, check=True)
  return sum(map(float, done.stdout.split()))


def _to_return(section: Section, target: float, **flags: Any) -> None:
  """Trains until a mean training return; reports the rate, and the seconds from the command to it."""
  if not section.gpu:
    target = -1.0  # Catch's least.
  with section.program('run', **flags) as program:
    found = program.follow(
      lambda found: 'steps_per_second' in found and found.get('best_return', -math.inf) >= target
    )
  reached = found.get('best_return', -math.inf) >= target
  section.report(target_return=target, seconds_to_target=found['seconds'] if reached else None)


def _atari(section: Section) -> dict[str, Any]:
  return {
    'env': section.size('atari:Pong', 'catch'),
    'num_actors': section.size(14, 1),
    **section.size({}, {'envs_per_actor': 8, 'batch_size': 4}),
    'num_steps': 1 << 40,
  }


def restart(section: Section) -> None:
  """Sebulba on Pong: the seconds to its first report without compiled functions, and again with them."""
  for name in ('cold', 'restart'):
    with section.program(name, program='sebulba', agent='ppo', **_atari(section)) as program:
      program.follow(lambda found: 'seconds_to_first_report' in found)
    if 'cut' in section.results:
      return


def anakin(section: Section) -> None:
  """Anakin's PPO on gymnax's Breakout: steps/s, and seconds to a return of 50."""
  env, num_envs = section.size(('gymnax:Breakout-MinAtar', 2048), ('catch', 16))
  flags = {'agent': 'ppo', 'env': env, 'num_envs': num_envs, 'num_steps': 1 << 40}
  _to_return(section, 50.0, program='anakin', **flags)


def craftax(section: Section) -> None:
  """Anakin's PPO on Craftax: steps/s, and seconds to a return of 5."""
  if importlib.util.find_spec('craftax') is None:
    raise Skipped('the package craftax is not installed; run `make add PACKAGES=craftax`')
  env, num_envs = 'craftax:Craftax-Symbolic-v1', section.size(1024, 8)
  flags = {'agent': 'ppo', 'env': env, 'num_envs': num_envs, 'num_steps': 1 << 40}
  _to_return(section, 5.0, program='anakin', **flags)


def memory(section: Section) -> None:
  """Anakin's PPO on gymnax's Breakout with 4,096 environments: the memory of the GPU."""
  env, num_envs = section.size(('gymnax:Breakout-MinAtar', 4096), ('catch', 64))
  flags = {'agent': 'ppo', 'env': env, 'num_envs': num_envs, 'num_steps': 1 << 40}
  with section.program('run', program='anakin', **flags) as program:
    program.follow(lambda found: 'steps_per_second' in found)


def _resumed(section: Section, env: str, **flags: Any) -> None:
  """R2D2 with a stop by Ctrl-C and a resume in between, each until it has a rate."""
  enough = 'steps_per_second'
  # By default learning would wait for a share of num_steps.
  flags = {**flags, 'min_replay_size': section.size(1000, 16)}
  flags |= {'env': env, 'num_steps': 1 << 40}
  with section.program('begun', program='r2d2', **flags) as program:
    program.follow(lambda found: enough in found)
    if 'cut' in section.results:
      return
    section.report(seconds_to_stop=program.stop())
  with section.program('resumed', resume='begun') as program:
    program.follow(lambda found: enough in found)


def r2d2_minatar(section: Section) -> None:
  """R2D2 on MinAtar's Breakout, stopped and resumed."""
  small = {'num_actors': 1, 'envs_per_actor': 4, 'batch_size': 4}
  _resumed(section, section.size('minatar:Breakout', 'catch'), **section.size({}, small))


def r2d2_atari(section: Section) -> None:
  """R2D2 on Pong, stopped and resumed."""
  small = {'num_actors': 1, 'envs_per_actor': 4, 'batch_size': 4}
  env = section.size('atari:Pong', 'catch')
  _resumed(section, env, **section.size({'num_actors': 14}, small))


def search(section: Section) -> None:
  """MuZero's search on MinAtar's Breakout: simulations/s by the number of environments."""
  env, batches, simulations = section.size(
    ('minatar:Breakout', (64, 512, 2048), 32), ('catch', (2,), 2)
  )
  directory = os.path.dirname(section.path)
  for batch in batches:
    words = [f'--env={env}', f'--batches={batch}', f'--simulations={simulations}', '--repeats=1']
    command = [sys.executable, '-m', 'benchmarks.search', *words, f'--results={directory}']
    environment = os.environ | {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
    try:
      done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=max(section.left, 0.1),
      )
    except subprocess.TimeoutExpired:
      section.report(cut=True)
      return
    if done.returncode:
      raise RuntimeError(done.stderr[-1500:])
    name = f'search-muzero-{env.replace(":", "-")}.json'
    with open(os.path.join(directory, name)) as f:
      record = json.load(f)
    rows = section.results.get('rows', []) + record['results']
    section.report(device=record['device'], rows=rows)


def pong_pqn(section: Section) -> None:
  """Sebulba's PQN on Pong: frames/s, and seconds to a return of 18."""
  _to_return(section, 18.0, program='sebulba', agent='pqn', **_atari(section))


def pong_ppo(section: Section) -> None:
  """Sebulba's PPO on Pong: frames/s, and seconds to a return of 18."""
  _to_return(section, 18.0, program='sebulba', agent='ppo', **_atari(section))


# Sections in order, with their shares; what one leaves goes to the later ones, so the longest is last.
ALL: dict[Callable[[Section], None], float] = {
  restart: 60,
  anakin: 50,
  craftax: 40,
  memory: 40,
  search: 40,
  r2d2_minatar: 60,
  r2d2_atari: 60,
  pong_pqn: 60,
  pong_ppo: 130,
}
WEIGHTS = {section.__name__: weight for section, weight in ALL.items()}


def main(name: str, seconds: str, path: str, device: str) -> None:
  """Runs a section by its name; `device` is 'gpu' or 'cpu'."""
  section = Section(float(seconds), path, device == 'gpu')
  try:
    next(function for function in ALL if function.__name__ == name)(section)
  except Skipped as reason:
    section.report(skipped=str(reason))


if __name__ == '__main__':
  main(*sys.argv[1:])
