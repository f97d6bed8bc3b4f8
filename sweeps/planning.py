"""Checks the runs of a sweep as launch.py checks a run, without starting anything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from absl import flags

from launchers import engine_flags, guard
from launchers.engine import Job
from programs import plan
from programs.options import early
from programs.options import flags as config_flags

# Flags that a sweep sets for each run, or that make no sense for several runs.
OURS = (
  *('seed', 'seeds', 'run_dir', 'resume', 'config', 'dry_run', 'graph', 'web', 'web_port'),
  *('list_envs', 'presets'),
)
_LAUNCHER = 'launcher'


def check_names(names: Iterable[str], source: str) -> None:
  """Raises ValueError, one sentence that begins with `source`, for flags that a sweep sets itself."""
  for name in names:
    if name in OURS:
      instead = 'list its values in "seeds"' if name == 'seed' else 'leave it out'
      raise ValueError(f'{source}: {name} is for a single run; {instead}.')


def job(command: Sequence[str]) -> Job:
  """Returns the job that launch.py makes of a command line; replaces the parsed flags of this process.

  Args:
    command: its flags.

  Raises:
    ValueError: launch.py refuses it, or it would not run on this machine; one sentence.
  """
  known = flags.FLAGS
  config_flags.define(*early.choice(command))
  if 'seed' not in known:
    raise ValueError('a sweep sets --seed, which the program lacks; give its function seed=1.')
  known.unparse_flags()
  for name in known:
    known[name].unparse()
  rest = config_flags.parse(['launch.py', *command])[1:]
  if rest:
    raise ValueError(f'{rest[0]!r} is not a flag; options look like --num_steps=1000.')
  where = known[_LAUNCHER].value
  if where != 'local':
    raise ValueError(
      f'--launcher={where}: a sweep runs its programs on this machine; leave it out, or start '
      'launch.py once per seed there.'
    )
  launcher = engine_flags.chosen()
  with guard.swept():  # The user's files, which planning runs, may leave processes.
    return plan.plan(launcher, dry_run=True, drawing='')


def cores_of(made: Job) -> float:
  """Returns the CPU cores that the nodes of a job ask for, as its placement says."""
  return sum(
    made.placement[label].cpus * len(nodes) for label, nodes in made.program.groups.items()
  )


def at_once(jobs: Sequence[Job]) -> tuple[int, str]:
  """Returns how many of some jobs this machine runs at once, and why, in words.

  As many as have their cores, at least one. Jobs with an accelerator run one after the other.
  """
  if any(made.placement[label].accelerator for made in jobs for label in made.program.groups):
    return 1, 'each uses the accelerator'
  cores, asked = len(os.sched_getaffinity(0)), max(map(cores_of, jobs))
  number = max(int(cores // asked), 1) if asked else cores
  return number, f'{cores} cores, and the nodes of each ask for up to {asked:g}'
