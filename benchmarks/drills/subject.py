"""The program that a drill disturbs: an endless run of a slow Catch on a mostly idle machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import TracebackType

import psutil

from benchmarks.drills.checks import Checks
from benchmarks.running import ROOT, RunningProgram
from rundir import audit, curves, node_files
from rundir.roles import LEARNER

SLOW_CATCH = os.path.join(ROOT, 'benchmarks', 'drills', 'slow_catch.py:make')
FOR_EVER = '--num_steps=1000000000'
OPTIONS = (
  '--num_actors=2',
  '--envs_per_actor=16',
  '--batch_size=8',
  '--eval_episodes=10',
  '--eval_period=3200',
  '--checkpoint_period=2',
)
# 320 steps a second.
ENVIRONMENT = (f'--env={SLOW_CATCH}', '--env_options=step_seconds=0.05')
SIGTERM_CODE = 143


def evidence(run_dir: str, node: str) -> int:
  """Returns a number that grows while a node works: the size of its output files."""
  if node.startswith(('actor', 'evaluator')):
    path = node_files.csv_path(run_dir, node)
  elif node.startswith(('replay', 'inference_learner')) and os.path.isdir(f'{run_dir}/audit'):
    path = os.path.join(run_dir, 'audit', audit.TRAINED)
  else:
    learners = curves.nodes(run_dir, LEARNER)
    path = node_files.csv_path(run_dir, learners[0]) if learners else ''
  return os.path.getsize(path) if os.path.exists(path) else 0


class Subject:
  """A program that runs until `stop` or the end of the context."""

  def __init__(
    self,
    directory: str,
    checks: Checks,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    output: str = '',
    deadline: float = 180.0,
  ):
    """Starts the program.

    Args:
      directory: an existing parent of the run directory, which may already exist for --resume.
      checks: collects the results.
      *flags: further flags for launch.py, which take precedence.
      environment: variables to set for launch.py.
      output: an existing directory for the output of launch.py; '' for `directory`.
      deadline: timeout of every wait, in seconds.
    """
    self.run_dir = os.path.join(directory, 'run')
    place = () if any(f.startswith('--resume') for f in flags) else (f'--run_dir={self.run_dir}',)
    options = (*place, *OPTIONS, *ENVIRONMENT, FOR_EVER) if place else ()
    self.program = RunningProgram(
      self.run_dir,
      *options,
      *flags,
      deadline=deadline,
      environment=environment,
      output=output or directory,
      own_session=True,
    )
    self.checks = checks

  def __enter__(self) -> Subject:
    return self

  def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
  ) -> None:
    self.program.kill()

  def pids(self) -> dict[str, int]:
    """Returns the ids of the nodes' processes, by names such as 'actor-0'."""
    return {name: process.pid for name, process in self.program.nodes().items()}

  def wait(self, condition: Callable[[], object], what: str) -> None:
    """Waits until a condition holds; otherwise raises AssertionError with launch.py's stderr."""
    self.program.wait_until(condition, what)

  def begin(self) -> dict[str, int]:
    """Waits until the program trains, evaluates and has a checkpoint; returns the ids of its nodes."""
    self.program.wait_for_progress()
    self.wait(self.program.checkpoint_counts, 'a checkpoint')
    self.wait(self.evaluations, 'an evaluation')
    return self.pids()

  def evaluations(self) -> int:
    """Returns the number of evaluations so far."""
    return len(curves.evaluator_returns(self.run_dir))

  def works(self, node: str) -> None:
    """Waits until there is new evidence of a node's work."""
    before = evidence(self.run_dir, node)
    self.wait(lambda: evidence(self.run_dir, node) > before, f'{node} works')

  def process(self, node: str) -> psutil.Process:
    """Waits until a node has a process; returns the process."""
    return self.program.wait_until(lambda: self.program.nodes().get(node), f'{node} has a process')

  def replaced(self, node: str, pid: int) -> bool:
    """Returns whether a node has a process other than `pid`."""
    return self.pids().get(node, pid) != pid

  def kill(self, node: str) -> None:
    """Kills a node and waits until it works after the restart."""
    victim = self.process(node)
    victim.kill()
    self.wait(lambda: self.replaced(node, victim.pid), f'{node} is started again')
    self.works(node)

  def unharmed(self, before: Mapping[str, int], after: str) -> None:
    """Checks that no node was replaced.

    Args:
      before: earlier process ids, by node.
      after: the disturbance, for the message.
    """
    now = self.pids()
    harmed = [name for name, pid in before.items() if now.get(name) != pid]
    self.checks.add(not harmed, f'{after}: no node is ended (ended: {harmed})')

  def stop(self) -> None:
    """Sends SIGTERM to the launcher, and checks that the program stops and can be resumed."""
    self.program.launcher.terminate()
    code, _, errors = self.program.end()
    self.checks.add(
      code == SIGTERM_CODE and f'--resume={self.run_dir}' in errors,
      f'SIGTERM: it ends with exit code {SIGTERM_CODE} and prints --resume (exit code {code})',
    )
