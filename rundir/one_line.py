"""Refuses text that does not fit into one line, where a script, a log or a table gets it as one."""

from __future__ import annotations

import re

# Control characters, Unicode's own ends of a line, and bytes of a file name that are no text.
_BREAKS = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def check(what: str, text: str) -> None:
  """Checks that a text of the user's is part of one line and can be written to a file.

  Args:
    what: where it comes from, the beginning of the sentence, as in '--run_dir='.
    text: any.

  Raises:
    ValueError: one sentence, if it has a control character, or one that is no text.
  """
  found = _BREAKS.search(text)
  if found is not None:
    raise ValueError(
      f'{what}{text!r} has the character {found[0]!r}, which cannot be part of a line; choose another.'
    )
