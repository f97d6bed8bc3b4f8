"""The restart policy: the maximum number of restarts of a failed node, and the delay before each."""

from __future__ import annotations

from launchers.placement import Resources
from rundir.errors import NonRetryableError

# A node that has run for longer starts with a clean record.
STEADY_SECONDS = 60.0
# This many exceptions in a row indicate a defect that a restart cannot fix.
MAX_EXCEPTIONS = 3
MAX_BACKOFF_SECONDS = 8.0


class Record:
  """Counts the failures of one node, and applies its group's restart policy."""

  def __init__(self, resources: Resources):
    self._resources = resources
    self._exceptions = self._failures = 0
    self._raised = False  # By the latest failure.

  def delay(self, code: int, seconds: float) -> float | None:
    """Records a failure and decides whether and when the node is restarted.

    Failures and exceptions are counted since the node last ran for more than 60 seconds.

    Args:
      code: exit code of the node, negative for a signal.
      seconds: how long the node had run, without its start-up.

    Returns:
      Seconds until the restart: `restart_backoff`, doubled after each further failure, up to 8. None if
      the node stays down: under the policy 'never', after more than `max_restarts` failures, after the
      third exception, or after a `NonRetryableError`.
    """
    if seconds > STEADY_SECONDS:
      self._failures = self._exceptions = 0
    self._raised = code > 0
    self._failures += 1
    self._exceptions += self._raised
    limit = self._resources.max_restarts if self._resources.restart == 'on_failure' else 0
    if (
      code == NonRetryableError.exit_code
      or self._failures > limit
      or self._exceptions >= MAX_EXCEPTIONS
    ):
      return None
    doublings = min(self._failures - 1, 16)
    return min(self._resources.restart_backoff * 2**doublings, MAX_BACKOFF_SECONDS)

  def standing(self) -> str:
    """Returns in words which restart in a row the next one is, and how many there are at most.

    After an exception that is the limit for exceptions, if it is reached first.
    """
    limit = self._resources.max_restarts
    after_exceptions = MAX_EXCEPTIONS - 1
    if self._raised and after_exceptions - self._exceptions < limit - self._failures:
      return f'{self._exceptions} of {after_exceptions} restarts in a row after exceptions'
    return f'{self._failures} of {limit} restarts in a row'
