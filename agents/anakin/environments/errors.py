"""Error messages about the names of environments."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
