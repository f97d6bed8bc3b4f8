"""Retries essential writes while the disk is full."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from absl import logging

from nodes.runtime import lifecycle
from rundir import files

_PAUSE_SECONDS = 1.0


def write_when_there_is_room(
  write: Callable[[], Any], should_stop: Callable[[], bool], what: str
) -> Any:
  """Calls `write`, retries while the disk is full, and returns its result.

  Args:
    write: an atomic write.
    should_stop: called before each retry; may raise.
    what: names the file in the log.

  Raises:
    lifecycle.Stopped: once `should_stop` returns True.
    OSError: if `write` fails for another reason.
  """
  said = False
  while True:
    try:
      return write()
    except OSError as error:
      if not files.is_full(error):
        raise
      if not said:
        logging.error('cannot write %s, waiting for room on the disk: %s', what, error)
      said = True
    if should_stop():
      raise lifecycle.Stopped
    time.sleep(_PAUSE_SECONDS)
