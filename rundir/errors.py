"""Failures that end a run."""

from __future__ import annotations


class NonRetryableError(ValueError):
  """A failure that a restart cannot fix. The launcher recognises it by the node's exit code."""

  exit_code = 2
