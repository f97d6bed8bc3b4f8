"""How a run has ended: its summary, the exit code of its launcher, and the line that shows both."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from rundir import files, reading

FINAL_EVALUATION = 'final_evaluation.json'
_END = 'end.json'
# Of a summary, in the line that shows the result. A kept policy has no return.
_RESULTS = (
  ('evaluator_return', '.4g'),
  *((name, '') for name in ('actor_steps', 'environment_frames', 'learner_steps')),
)


def summary_path(path: str) -> str:
  """Returns the path of the summary that the monitor writes at the end of a run."""
  return os.path.join(path, 'summary.json')


def read_summary(path: str) -> dict[str, Any] | None:
  """Returns the summary of a run, without figures that are no numbers; None if it has not finished."""
  try:
    summary = reading.json_object(summary_path(path))
  except (FileNotFoundError, ValueError):  # Empty, after a power failure.
    return None
  return {
    name: value
    for name, value in summary.items()
    if (isinstance(value, dict) if name == 'learners' else reading.is_number(value))
  }


def record_end(path: str, code: int, seconds: float, restarts: int = 0) -> None:
  """Writes `end.json`.

  Args:
    path: the run directory.
    code: exit code of the launcher.
    seconds: of the run.
    restarts: how often a cluster has started the launcher again.
  """
  end: dict[str, Any] = {'exit_code': code, 'seconds': round(seconds, 1)}
  end |= {'time': round(time.time(), 1), 'restarts': restarts}
  with contextlib.suppress(OSError):
    files.write_json(os.path.join(path, _END), end)


def end_of(path: str) -> dict[str, Any] | None:
  """Returns the contents of `end.json`; None if the program runs, or its launcher was killed."""
  try:
    end = reading.json_object(os.path.join(path, _END))
  except (OSError, ValueError):
    return None
  valid = isinstance(end.get('exit_code'), int) and reading.is_number(end.get('seconds'))
  return end if valid else None


def has_ended(path: str) -> bool:
  """Returns whether a run has done its work: a summary is written, or the program exited with 0."""
  end = end_of(path)
  return read_summary(path) is not None or (end is not None and end['exit_code'] == 0)


def result(path: str) -> str:
  """Returns the result of a run in one line, with the seconds for which its program ran.

  It is '' if the run has not finished. A program without a summary has only the seconds.
  """
  if not has_ended(path):
    return ''
  words, summary, end = ['done:'], read_summary(path), end_of(path)
  if summary is not None:
    words += [f'{name}={summary[name]:{form}}' for name, form in _RESULTS if name in summary]
  if end is not None:
    words.append(f'seconds={end["seconds"]:.1f}')
  return ' '.join([*words, f'run_dir={path}'])


def paths(path: str) -> tuple[str, str]:
  """Returns the paths of the summary and of the end of a run."""
  return summary_path(path), os.path.join(path, _END)


def delete_evaluation(path: str) -> None:
  """Removes the final evaluation of a run that is resumed, whose parameters may become others."""
  with contextlib.suppress(FileNotFoundError):
    os.remove(os.path.join(path, FINAL_EVALUATION))


def delete(path: str) -> None:
  """Removes the summary and the end of a run that continues."""
  for file in paths(path):
    with contextlib.suppress(FileNotFoundError):
      os.remove(file)
