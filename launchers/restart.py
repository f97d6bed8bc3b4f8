"""How often a node that failed is started again, and how long after."""

from __future__ import annotations

from launchers.placement import Resources
from rundir.errors import NonRetryableError

# A node that has run for this long begins with a clean record.
STEADY_SECONDS = 60.0
# A node that raises this often in a row has a defect that no restart mends.
MAX_EXCEPTIONS = 3
MAX_BACKOFF_SECONDS = 8.0


class Record:
  """The failures of one node, and what its group's policy says to the next."""

  def __init__(self, resources: Resources):
    self._resources = resources
    self._exceptions = 0
    self.failures = 0

  def delay(self, code: int, seconds: float) -> float | None:
    """Notes a failure; returns the seconds until the node is to be started again.

    None if its policy has had enough: it is 'never', or this is the failure after `max_restarts` in a
    row, or the third exception in a row, which would only come again, or the node itself says so.

    Args:
      code: exit code of the node, negative for a signal.
      seconds: how long it had run.
    """
    if seconds > STEADY_SECONDS:
      self.failures = self._exceptions = 0
    self.failures += 1
    self._exceptions += code > 0
    limit = self._resources.max_restarts if self._resources.restart == 'on_failure' else 0
    if (
      code == NonRetryableError.exit_code
      or self.failures > limit
      or self._exceptions >= MAX_EXCEPTIONS
    ):
      return None
    doublings = min(self.failures - 1, 16)
    return min(self._resources.restart_backoff * 2**doublings, MAX_BACKOFF_SECONDS)
