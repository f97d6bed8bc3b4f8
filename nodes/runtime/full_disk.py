"""Writes that wait for room on a full disk, where there is nothing else to do without them."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from nodes.runtime import lifecycle

_PAUSE_SECONDS = 1.0
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_when_there_is_room(
  write: Callable[[], Any], should_stop: Callable[[], bool], what: str
) -> Any:
  """Writes; on a full disk tries again until there is room. Returns what `write` returns.

  Args:
    write: writes, whole or not at all.
    should_stop: called before each further try; may raise.
    what: is written, for the log.

  Raises:
    lifecycle.Stopped: when `should_stop` says so.
    OSError: what `write` fails with for other reasons.
  """
  said = False
  while True:
    try:
      return write()
    except OSError as error:
      if error.errno not in FULL:
        raise
      if not said:
        logging.error('%s cannot be written, and waits for room on the disk: %s', what, error)
      said = True
    if should_stop():
      raise lifecycle.Stopped
    time.sleep(_PAUSE_SECONDS)
