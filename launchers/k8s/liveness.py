"""The watchdog of a pod: its node's heartbeat in a file, and the probes that judge it.

`python -m launchers.k8s.liveness NODE_TIMEOUT` is the command of the probes. It exits with 1 if the node
hangs, after it has made the node write its stacks to its log. Kubernetes kills the pod after several
failures in a row, so the log has the stacks by then. The module imports little, because every pod runs
the command again and again.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from launchers import heartbeat, stop_requests

# Environment variable of a pod: the file with its node's latest heartbeat.
VARIABLE = 'LAUNCHPOD_HEARTBEAT_FILE'
# One failure does not kill: after a suspension of its machine, a node has not sent a heartbeat yet.
FAILURES = 3
_LONGEST_PERIOD = 30
# Deadline of a check in seconds. A busy machine may take long to start the command.
_CHECK_SECONDS = 30


def sender(path: str) -> Callable[[heartbeat.Beat], None]:
  """Returns a function that replaces the file with a beat, its time and this process's id."""

  def send(beat: heartbeat.Beat) -> None:
    with contextlib.suppress(OSError):  # The next beat may have more luck.
      with open(f'{path}.tmp', 'wb') as f:
        f.write(f'{os.getpid()} {time.monotonic()}\n'.encode() + beat.pack())
      os.replace(f'{path}.tmp', path)

  return send


def check(path: str, node_timeout: float) -> str:
  """Returns how the node of this pod hangs; '' if it does not. Requests its stacks if it hangs.

  Args:
    path: the file of `sender`, in a process on this machine.
    node_timeout: seconds without a heartbeat, or without progress, that count as a hang.
  """
  try:
    with open(path, 'rb') as f:
      header, line = f.read().split(b'\n', 1)
  except FileNotFoundError:
    return 'has sent no heartbeat yet'
  pid, sent = header.split()
  # The monotonic clock is that of the machine, and no change of its time affects it.
  age = time.monotonic() - float(sent)
  hang, _ = heartbeat.find_hang(heartbeat.unpack(line), age, node_timeout)
  if hang:
    with contextlib.suppress(ProcessLookupError):
      os.kill(int(pid), stop_requests.for_stacks(age))
  return hang


def probes(node_timeout: float) -> dict[str, Any]:
  """Returns the probes of a container, for its spec.

  The startup probe waits for the first heartbeat, `heartbeat.START_FACTOR` times as long as
  `node_timeout`. The liveness probe then checks the node until it ends.

  Args:
    node_timeout: see `check`; infinite: no probes.
  """
  if math.isinf(node_timeout):
    return {}
  period = max(1, min(_LONGEST_PERIOD, round(node_timeout / 10)))
  probe = {
    'exec': {'command': ['python', '-S', '-m', 'launchers.k8s.liveness', f'{node_timeout:g}']},
    'periodSeconds': period,
    'timeoutSeconds': _CHECK_SECONDS,
  }
  patience = math.ceil(heartbeat.START_FACTOR * node_timeout / period)
  return {
    'startupProbe': {**probe, 'failureThreshold': max(patience, FAILURES)},
    'livenessProbe': {**probe, 'failureThreshold': FAILURES},
  }


def main(argv: list[str]) -> int:
  """Checks the node of this pod; returns the exit code. Kubernetes shows the output in its events."""
  hang = check(os.environ[VARIABLE], float(argv[1]))
  if hang:
    print(f'the node {hang} (--node_timeout={argv[1]})')
  return 1 if hang else 0


if __name__ == '__main__':
  sys.exit(main(sys.argv))
