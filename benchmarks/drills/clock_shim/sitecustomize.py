"""Sets the clock of a Python process, for those who have this directory on their PYTHONPATH.

The file that LAUNCHPOD_DRILL_CLOCK names holds the whole seconds by which `time.time` and
`time.time_ns` are ahead; while there is none, they are right. What asks the system itself, as C++ does,
is not deceived.
"""

import os
import time


def _install(path: str) -> None:
  real, real_ns, monotonic = time.time, time.time_ns, time.monotonic
  seconds, due = 0, 0.0

  def ahead() -> int:
    nonlocal seconds, due
    if monotonic() >= due:
      due = monotonic() + 0.1
      try:
        with open(path) as f:
          seconds = int(f.read())
      except (OSError, ValueError):
        seconds = 0
    return seconds

  time.time = lambda: real() + ahead()
  time.time_ns = lambda: real_ns() + ahead() * 10**9


if 'LAUNCHPOD_DRILL_CLOCK' in os.environ:
  _install(os.environ['LAUNCHPOD_DRILL_CLOCK'])
