"""Several learners in one run directory, each with checkpoints and final parameters of its own.

The files of learner 0 are where those of a single learner are, so whatever reads a run reads learner 0.
Those of learner k > 0 are in `learners/k`, which has the same layout.
"""

from __future__ import annotations

import os

from rundir import checkpoints, reading

_FOLDER = 'learners'


def directory(run_dir: str, learner: int) -> str:
  """Returns the directory that holds the checkpoints and the final parameters of a learner."""
  return os.path.join(run_dir, _FOLDER, str(learner)) if learner else run_dir


def directories(run_dir: str) -> list[str]:
  """Returns the directories of the learners of a run that have written something, learner 0 first."""
  folder = os.path.join(run_dir, _FOLDER)
  names = filter(str.isdecimal, reading.names(folder))
  by_number = sorted(names, key=lambda name: (len(name), name))  # Longer numbers are larger.
  return [run_dir, *(os.path.join(folder, name) for name in by_number)]


def num_with_checkpoint(run_dir: str) -> int:
  """Returns the number of learners that have written a checkpoint."""
  return sum(bool(checkpoints.steps(checkpoints.directory(p))) for p in directories(run_dir))


def counts(run_dir: str) -> dict[str, int]:
  """Returns the counters of the newest checkpoints, as sums over the learners; {} without checkpoints.

  `learner_steps` is the largest of the learners, as in the monitor's totals.

  Raises:
    UnusableCheckpoint: as `checkpoints.newest`.
  """
  newest = [checkpoints.newest(checkpoints.directory(path)) for path in directories(run_dir)]
  found = [checkpoint.counts for checkpoint in newest if checkpoint is not None]
  if not found:
    return {}
  sums = {name: sum(one[name] for one in found) for name in found[0]}
  return sums | {'learner_steps': max(one['learner_steps'] for one in found)}
