"""Errors of factories for an invalid task or option; each names the flag to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
  """Returns '; did you mean X?' for the entry of `known` closest to `name`, or ''."""
  spelling = {candidate.lower(): candidate for candidate in known}
  close = difflib.get_close_matches(name.lower(), spelling, n=1)
  return f'; did you mean {spelling[close[0]]}?' if close else ''


def reject_task(family: str, task: str) -> None:
  """Raises ValueError if a task is given for a family without tasks."""
  if task:
    raise ValueError(f'--env={family}:{task}: {family} has no tasks; write --env={family}')


def require_task(family: str, task: str, example: str) -> None:
  """Raises ValueError if no task is given for a family with tasks."""
  if not task:
    raise ValueError(f'--env={family} needs a task, for example --env={family}:{example}')


def unknown_task(family: str, task: str, known: Iterable[str], hint: str = '') -> ValueError:
  """Returns the error for a task that the family does not have.

  Args:
    family: the part of the name before the colon.
    task: the part after the colon.
    known: the family's tasks; the error suggests the closest.
    hint: the format of task names, for families with many tasks.
  """
  tail = f' ({hint})' if hint else ''
  return ValueError(
    f'--env={family}:{task}: {family} has no {task}{did_you_mean(task, known)}{tail}'
  )


def require_option(condition: bool, option: str, value: object, must: str) -> None:
  """Raises ValueError if an option's value is out of range.

  Args:
    condition: whether the value is valid.
    option: the option's name.
    value: the given value.
    must: the rest of the sentence '... must', such as 'be at least 2'.
  """
  if not condition:
    raise ValueError(f'--env_options={option}={value}: {option} must {must}')
