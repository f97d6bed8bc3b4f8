"""Error messages about the names of environments."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Iterator


def unknown_task(family: str, task: str, known: Iterable[str], where: str = '') -> ValueError:
  """Returns the error for a task that a family does not have, with the nearest name.

  Args:
    family: the name before the colon.
    task: the name after it.
    known: the tasks that there are.
    where: of what they are all; '' for the whole family.
  """
  known = list(known)
  close = difflib.get_close_matches(task, known, n=1)
  hint = f'; did you mean {close[0]}?' if close else ''
  return ValueError(
    f'--env={family}:{task}: {family} has no {task!r}{where}{hint} ({", ".join(known)})'
  )


def negative_limit(max_episode_steps: int, suite: str = 'the suite') -> ValueError:
  """Returns the error for a negative time limit of a suite's environment."""
  return ValueError(
    f'--env_options=max_episode_steps={max_episode_steps} must be 0 or more; 0 is the limit that '
    f'{suite} itself has.'
  )


@contextlib.contextmanager
def one_sentence(name: str) -> Iterator[None]:
  """Turns what a suite raises while it makes an environment into a ValueError with its first line."""
  try:
    yield
  except Exception as error:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    raise ValueError(f'--env={name} cannot be made: {first}') from error
