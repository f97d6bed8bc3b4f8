"""Reads transitions from recorded unrolls of any program. Imports no JAX: the launcher counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from acme import specs

from agents import spaces
from agents.types import FIRST, LAST, Array
from environments import nests
from rundir import recorded_unrolls

_STEP_TYPE = 'timestep/step_type'
_OBSERVATION = 'timestep/observation'
# The columns of a transition besides the leaves of its observation. Recorded unrolls of every program
# have them.
_ROWS = (_STEP_TYPE, 'timestep/reward', 'timestep/discount', 'action')


def valid(step_type: Array) -> np.ndarray:
  """Returns which pairs of successive rows are transitions, bool `[N, L-1]`.

  Entry t is of rows t and t+1. It is False where row t is LAST, whose action is ignored, and where row
  t+1 is FIRST, whose reward and discount belong to no transition. A transition into a LAST row is one,
  with discount 0 after a termination and 1 after a truncation.

  Args:
    step_type: uint8 `[N, L]`.
  """
  return (step_type[:, :-1] != LAST) & (step_type[:, 1:] != FIRST)


def pairs(columns: Mapping[str, Array]) -> dict[str, np.ndarray]:
  """Returns the transitions of unrolls as unrolls of two rows, `[M, 2, ...]` each.

  Args:
    columns: `[N, L, ...]` each; 'timestep/step_type' is one of them.
  """
  unroll, row = np.nonzero(valid(columns[_STEP_TYPE]))
  rows = np.stack([row, row + 1], axis=1)
  return {name: np.asarray(column)[unroll[:, None], rows] for name, column in columns.items()}


def check(run_dirs: Sequence[str], environment_spec: specs.EnvironmentSpec) -> None:
  """Checks that runs have recorded unrolls of environments with these specs.

  Raises:
    NonRetryableError: a ValueError, one sentence that begins with a path.
  """
  declared = nests.named(environment_spec.observations, _OBSERVATION)
  declared['action'] = environment_spec.actions
  ours = {name: _text(spec.shape, np.dtype(spec.dtype).name) for name, spec in declared.items()}
  num_actions = spaces.num_values(environment_spec.actions) or ()
  for run_dir in run_dirs:
    layout = recorded_unrolls.read_format(run_dir)
    columns = layout.columns
    for name in [*_observation(columns), *ours]:
      theirs = _text(columns[name][0][1:], columns[name][1]) if name in columns else 'nothing'
      if theirs != ours.get(name, 'nothing'):
        what = name.removeprefix('timestep/')
        raise recorded_unrolls.NonRetryableError(
          f"{run_dir} has recorded {theirs} as {what}, but this environment's is "
          f'{ours.get(name, "nothing")}; name a run in the same environment.'
        )
    if layout.num_actions not in ((), num_actions):
      theirs, mine = (', '.join(map(str, each)) for each in (layout.num_actions, num_actions))
      raise recorded_unrolls.NonRetryableError(
        f'{run_dir} has recorded one of {theirs} actions, and this environment has {mine}; give it the '
        '--env_options of that run.'
      )


def count(run_dirs: Sequence[str]) -> int:
  """Returns the number of transitions that runs have recorded.

  Raises:
    NonRetryableError: a ValueError, if a recording cannot be read; one sentence.
  """
  return sum(
    int(valid(recorded_unrolls.read_chunk(path, [_STEP_TYPE])[_STEP_TYPE]).sum())
    for path in _chunks(run_dirs)
  )


def read(run_dirs: Sequence[str], total: int, wanted: int) -> Iterator[dict[str, np.ndarray]]:
  """Yields transitions as unrolls of two rows, always the same in the same order.

  Args:
    run_dirs: the runs.
    total: considers the first `total` transitions only, as counted when the program was built. Runs
      that still record add others after them.
    wanted: number of transitions to yield, evenly spaced; at most `total`.

  Yields:
    Columns `[M, 2, ...]`, those of one chunk at a time.

  Raises:
    NonRetryableError: if a recording cannot be read; one sentence.
  """
  seen = 0
  for path in _chunks(run_dirs):
    observation = _observation(recorded_unrolls.column_names(path))
    columns = pairs(recorded_unrolls.read_chunk(path, [*_ROWS, *observation]))
    number = np.arange(seen, seen + len(columns[_STEP_TYPE]), dtype=np.int64)
    seen += len(number)
    kept = ((number + 1) * wanted // total > number * wanted // total) & (number < total)
    yield {name: column[kept] for name, column in columns.items()}
    if seen >= total:
      return


def _observation(names: Iterable[str]) -> list[str]:
  """Returns the names of the leaves of an observation among those of columns."""
  return [name for name in names if f'{name}/'.startswith(f'{_OBSERVATION}/')]


def _text(shape: Sequence[int], dtype: str) -> str:
  return f'{dtype}{list(shape)}'


def _chunks(run_dirs: Sequence[str]) -> list[str]:
  """Returns the chunks of all runs by the time that begins their names, so that new ones come last."""
  found = (path for run_dir in run_dirs for path in recorded_unrolls.chunks(run_dir))
  return sorted(found, key=os.path.basename)
