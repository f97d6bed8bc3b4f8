"""The process of one node: `python -m launchers.node_entry PAYLOAD [GRACE_SECONDS]`.

Launchpad's own entry ignores SIGTERM while the main thread is inside a Courier call, exits with -14
after a clean stop, and opens a debugger on a crash. This one exits 0 after a requested stop, at the
latest `GRACE_SECONDS` after SIGTERM whatever the main thread is doing (a checkpoint that is being
written is finished first), exits 1 after an exception with the traceback last, and does not outlive
its launcher.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import traceback

_PR_SET_PDEATHSIG = 1
DEFAULT_GRACE = 4.0
# Threads of this name are let finish, unless the launcher kills the process. See nodes.lifecycle.
FINISH = 'finish-before-leaving'


def _die_with_parent(parent: int) -> None:
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != parent:
    os._exit(1)


def _leave(code: int) -> None:
  """Ends the process, waiting for few of its threads: others may be in calls that never return."""
  for thread in threading.enumerate():
    if thread.name == FINISH:
      thread.join()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def _watch_for_sigterm(stop: threading.Event, grace: float) -> socket.socket:
  """Sets `stop` on SIGTERM, and ends the process `grace` seconds later.

  A Python signal handler runs only when the main thread returns to the interpreter; the wake-up
  file descriptor is written by the C handler, so a thread that reads it always learns of the signal.
  """
  reader, writer = socket.socketpair()
  writer.setblocking(False)
  signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

  def watch() -> None:
    while (number := reader.recv(1)) and number[0] != signal.SIGTERM:
      pass
    stop.set()
    threading.Event().wait(grace)
    _leave(0)

  threading.Thread(target=watch, name='sigterm-watch', daemon=True).start()
  return writer


def main(argv: list[str]) -> None:
  """Runs the node whose function is in the file `argv[1]`. Does not return."""
  parent = int(os.environ.get('LAUNCHPOD_LAUNCHER_PID', os.getppid()))
  _die_with_parent(parent)
  from absl import flags, logging
  from launchpad.launch import worker_manager

  flags.FLAGS(argv[:1])
  flags.FLAGS.set_default('lp_termination_notice_secs', -1)
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
  manager = worker_manager.WorkerManager(register_in_thread=True)
  stop = manager.stop_event()
  grace = float(argv[2]) if len(argv) > 2 else DEFAULT_GRACE
  keep = _watch_for_sigterm(stop, grace)  # noqa: F841  closing it would lose the signal
  try:
    import cloudpickle

    with open(argv[1], 'rb') as f:
      function = cloudpickle.load(f)
    function()
  except BaseException as error:
    if stop.is_set() or (isinstance(error, SystemExit) and not error.code):
      _leave(0)
    traceback.print_exc()
    _leave(getattr(error, 'exit_code', 1))
  _leave(0)


if __name__ == '__main__':
  main(sys.argv)
