"""Drill: the clock is set back by an hour while a program runs."""

from __future__ import annotations

import functools
import os

from benchmarks.drills.checks import Checks
from benchmarks.drills.subject import Subject
from benchmarks.running import ROOT

SHIM = os.path.join(ROOT, 'benchmarks', 'drills', 'clock_shim')
PROGRAMS = ('sebulba', 'impala')
BACK_SECONDS = 3600
# Further actor steps after the resume.
FURTHER_STEPS = 10_000


def environment(path: str) -> dict[str, str]:
  """Returns environment variables that set a process's clock ahead by the seconds in a file."""
  paths = [SHIM, *filter(None, [os.environ.get('PYTHONPATH')])]
  return {'PYTHONPATH': os.pathsep.join(paths), 'LAUNCHPOD_DRILL_CLOCK': path}


def set_clock(path: str, seconds: int) -> None:
  """Sets the seconds by which the clock is ahead."""
  with open(f'{path}.new', 'w') as f:
    f.write(str(seconds))
  os.replace(f'{path}.new', path)


def step_back(directory: str, checks: Checks) -> None:
  """For each program: sets the clock back, kills each node, then stops and resumes the run.

  Args:
    directory: an existing directory.
    checks: collects the results.
  """
  for program in PROGRAMS:
    inside = os.path.join(directory, program)
    os.mkdir(inside)
    path = os.path.join(inside, 'clock')
    with Subject(inside, checks, f'--program={program}', environment=environment(path)) as subject:
      pids = subject.begin()
      set_clock(path, -BACK_SECONDS)
      for node in sorted(pids):
        subject.works(node)
      subject.unharmed(pids, f'{program}, its clock an hour back')
      for node in sorted(pids):
        subject.kill(node)
        checks.add(True, f'{program}: {node} restarts and works')
      taken = subject.program.checkpoint_counts()['actor_steps']
      subject.wait(functools.partial(_counts, subject, taken), 'actor steps are counted')
      checks.add(True, f'{program}: actor steps are counted')
      subject.stop()
      steps = subject.program.checkpoint_counts()['actor_steps'] + FURTHER_STEPS
    flags = (f'--resume={subject.run_dir}', f'--num_steps={steps}')
    with Subject(inside, checks, *flags, environment=environment(path)) as resumed:
      code, output, errors = resumed.program.end(timeout=300)
      checks.add(
        code == 0 and 'done: ' in output,
        f'{program}: it is resumed and ends by itself (exit code {code}: {errors[-500:]!r})',
      )


def _counts(subject: Subject, more_than: int) -> bool:
  return subject.program.checkpoint_counts()['actor_steps'] > more_than
