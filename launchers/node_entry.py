"""The process of one node: the module is run with PAYLOAD [GRACE_SECONDS].

Launchpad's own entry ignores SIGTERM while the main thread is in compiled code, such as XLA's. It exits
with -14 after a clean stop, and opens a debugger on a crash. This entry behaves as follows:

* After a requested stop it exits 0, at most `GRACE_SECONDS` after SIGTERM, even if the main thread is
  busy. A checkpoint in progress is completed first.
* After an exception it exits 1, with the traceback as its last output.
* It does not outlive its launcher.
* It sends a heartbeat from its first second.
* On request it writes the stacks of all threads to its log, even if no Python can run.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable

from environments import entry
from launchers import allocator, heartbeat, streams
from launchers.stop_requests import STACKS, STACKS_OF_STUCK
from nodes.runtime import activity, open_files

DEFAULT_GRACE = 4.0
# A thread of its own receives SIGTERM, perhaps after the main thread has seen the stop event, or the end
# of a call to a node that has received it before.
_REQUEST_SECONDS = 2.0


def _leave(code: int) -> None:
  """Exits, after the threads named `lifecycle.FINISH`; others may be in calls that never return."""
  from nodes.runtime import lifecycle  # Imports Launchpad.

  activity.mark(activity.LEAVING)
  # They and the main thread may start others.
  while threads := [t for t in threading.enumerate() if t.name == lifecycle.FINISH]:
    for thread in threads:
      thread.join()
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


_actions: dict[int, Callable[[], None]] = {}


def _on_signal(number: int, action: Callable[[], None]) -> None:
  """Calls `action` in a thread whenever this process receives a signal, which must have a handler.

  A Python signal handler runs only when the main thread returns to the interpreter. The C handler
  writes to the wake-up file descriptor, so a thread that reads it always receives the signal.
  """
  known = bool(_actions)
  _actions[number] = action
  if known:
    return
  reader, writer = socket.socketpair()
  writer.setblocking(False)
  signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

  def receive(writer: socket.socket) -> None:  # Keeps the writer open, or the signal is lost.
    while number := reader.recv(1):
      if number[0] in _actions:
        _actions[number[0]]()

  threading.Thread(target=receive, args=(writer,), name='signals', daemon=True).start()
  _reset_signals_in_children()


def _watch_for_sigterm(
  stop: threading.Event, requested: threading.Event, grace: float, stopped: Callable[[], int]
) -> None:
  """Sets both events on SIGTERM, and exits with the code of `stopped` after `grace` seconds."""

  def on_sigterm() -> None:
    stop.set()
    requested.set()
    late = threading.Timer(grace, lambda: _leave(stopped()))
    late.daemon = True
    late.start()

  _on_signal(signal.SIGTERM, on_sigterm)


def _reset_signals_in_children() -> None:
  """Gives forked children, such as the workers of an environment, the default handling of signals.

  A child has copies of the wake-up descriptor and of the handlers. With them a SIGTERM to the child
  would stop the node, and leave the child running.
  """
  numbers = (signal.SIGTERM, signal.SIGQUIT, STACKS)
  forking = threading.local()

  def block() -> None:  # Until the child has reset them.
    forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)

  def unblock() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

  def reset() -> None:
    signal.set_wakeup_fd(-1)
    for number in numbers:
      signal.signal(number, signal.SIG_DFL)
    unblock()

  os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=reset)


def _write_stacks_on_request() -> None:
  """Has this process write the stacks of all threads to stderr on `STACKS` and `STACKS_OF_STUCK`.

  For the first, a thread of Python writes them. It has the interpreter lock, so no other thread changes
  its frames meanwhile. For the second, which comes if no thread gets the lock, the C handler of
  faulthandler does. One thread alone receives it, besides those that exist already. Otherwise a thread
  of a library could, and the stacks would not say which thread is the current one.
  """

  def receive() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {STACKS_OF_STUCK})
    threading.Event().wait()

  faulthandler.register(STACKS_OF_STUCK, all_threads=True)
  # New threads, not only Python's, inherit it.
  signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS_OF_STUCK})
  threading.Thread(target=receive, name='stacks', daemon=True).start()
  signal.signal(STACKS, lambda number, frame: None)
  signal.siginterrupt(STACKS, False)  # System calls go on.
  _on_signal(STACKS, lambda: faulthandler.dump_traceback(all_threads=True))


def begin_heartbeat(send: Callable[[heartbeat.Beat], None]) -> heartbeat.HeartbeatSender:
  """Starts the heartbeat of this process, and has it write its stacks to stderr on request.

  Args:
    send: see `heartbeat.HeartbeatSender`.
  """
  activity.mark(activity.STARTING)
  faulthandler.enable()
  _write_stacks_on_request()
  heart = heartbeat.HeartbeatSender(send)
  heart.start()
  activity.announce_with(heart.beat)
  return heart


def _is_cut_off(error: BaseException) -> bool:
  """Returns whether a node fails because one that it calls, in Courier, has gone."""
  code = str(getattr(error, 'code', ''))
  return 'CANCELLED' in code or 'UNAVAILABLE' in code


def run(
  load: Callable[[], Callable[[], object]],
  grace: float = DEFAULT_GRACE,
  stopped: Callable[[], int] = lambda: 0,
  returned: Callable[[], None] = lambda: None,
) -> int:
  """Runs a node in the main thread of this process.

  Args:
    load: returns the node's function.
    grace: seconds after SIGTERM at which the process exits, even if the node is busy.
    stopped: returns the exit code of a node stopped by SIGTERM.
    returned: called when the node's function has returned without a request to stop.

  Returns:
    The exit code. The caller must exit with `os._exit`, because threads may never return.
  """
  allocator.limit_arenas()
  open_files.allow_many()
  from absl import flags, logging
  from launchpad.launch import worker_manager

  flags.FLAGS.set_default('lp_termination_notice_secs', -1)
  logging.use_absl_handler()
  logging.set_verbosity(logging.INFO)
  manager = worker_manager.WorkerManager(register_in_thread=True)
  stop = manager.stop_event()
  requested = threading.Event()
  _watch_for_sigterm(stop, requested, grace, stopped)
  try:
    function = load()
    activity.announce(activity.RUNNING)  # A node class may mark finer activities.
    function()
  except BaseException as error:  # Includes SystemExit: a library that exits has not done the work.
    # A colocation sets the stop event itself when one of its nodes fails.
    stopping = stop.is_set() or _is_cut_off(error)
    if not (stopping and requested.wait(_REQUEST_SECONDS)):
      traceback.print_exc()
      return getattr(error, 'exit_code', 1)
  if stop.is_set():
    return stopped()
  returned()
  return 0


def main(argv: list[str]) -> None:
  """Runs a node, then ends this process with the node's exit code; never returns.

  Args:
    argv: the name of the program; the file with the node's function, written by cloudpickle; and,
      unless it is `DEFAULT_GRACE`, the grace in seconds, as in `run`.
  """
  entry.die_with(int(os.environ.get(entry.PARENT_VARIABLE, os.getppid())))
  streams.drop_unwritable_output()
  heart = begin_heartbeat(heartbeat.pipe_sender())
  from absl import flags

  flags.FLAGS(argv[:1])

  def load() -> Callable[[], object]:
    import cloudpickle

    with open(argv[1], 'rb') as f:
      return cloudpickle.load(f)

  from launchers import profiling  # With absl and Launchpad.

  profiling.begin(argv[1])
  grace = float(argv[2]) if len(argv) > 2 else DEFAULT_GRACE
  _leave(run(load, grace, returned=heart.returned))
