"""Records a JAX profile of a node's process, which an environment variable asks for."""

from __future__ import annotations

import os
import sys
import threading
import time

from absl import logging

from nodes.runtime import activity, lifecycle

_VARIABLE = 'LAUNCHPOD_PROFILE'
# After the first mark of work: the first updates compile, and fill queues.
_SETTLING_SECONDS = 5.0
_POLL_SECONDS = 0.2


def variables(node: str, seconds: float, directory: str) -> dict[str, str]:
  """Returns the environment variables by which `begin` profiles a node.

  Args:
    node: such as 'learner/0'.
    seconds: length of the profile.
    directory: receives it.
  """
  return {_VARIABLE: f'{node}:{seconds:g}:{directory}'}


def begin(payload: str, settling_seconds: float = _SETTLING_SECONDS) -> threading.Thread | None:
  """Starts a thread that records the profile, if this process is to have one; returns the thread.

  The profile begins some seconds after the node begins to work. A restarted node records none.

  Args:
    payload: path of the node's payload, which ends with its name, as in 'learner-0.pkl'.
    settling_seconds: from the begin of the work to that of the profile.
  """
  node, _, rest = os.environ.get(_VARIABLE, '').partition(':')
  name = os.path.splitext(os.path.basename(payload))[0]
  if not node or name != node.replace('/', '-') or lifecycle.restart_count():
    return None
  seconds, _, directory = rest.partition(':')
  thread = threading.Thread(
    target=_record,
    args=(float(seconds), os.path.join(directory, name), settling_seconds),
    name='profile',
    daemon=True,
  )
  thread.start()
  return thread


def _has_begun() -> bool:
  now = activity.latest().activity
  return now.is_work or now is activity.WAITING_FOR_REPLAY


def _record(seconds: float, directory: str, settling_seconds: float) -> None:
  while not _has_begun():
    time.sleep(_POLL_SECONDS)
  time.sleep(settling_seconds)
  jax = sys.modules.get('jax')  # Not imported here: an actor would take seconds and memory for it.
  if jax is None:
    logging.error(
      '--profile: this node does not use JAX; py-spy profiles it, see docs/debugging.md'
    )
    return
  try:
    jax.profiler.start_trace(directory)
    time.sleep(seconds)
    jax.profiler.stop_trace()
    logging.info('profiled %g seconds into %s', seconds, directory)
  except Exception:  # The run continues without its profile.
    logging.exception('--profile failed')
