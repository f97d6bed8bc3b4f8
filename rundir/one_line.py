"""Rejects text with line breaks or control characters, which would break scripts, logs and tables."""

from __future__ import annotations

import re

# Control characters, Unicode line separators, and surrogates of undecodable bytes in file names.
_BREAKS = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')


def check(what: str, text: str) -> None:
  """Checks that user-supplied text fits on one line and can be written to a file.

  Args:
    what: its source, such as '--run_dir='; begins the error message.
    text: the text to check.

  Raises:
    ValueError: if it has a control character, a line break or an undecodable byte; one sentence.
  """
  found = _BREAKS.search(text)
  if found is not None:
    raise ValueError(
      f'{what}{text!r} has the character {found[0]!r}, which cannot be part of a line; choose another.'
    )
