"""A node that runs as a step of a Slurm job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from launchers import child_process, disk_space, heartbeat
from launchers.placement import Resources
from launchers.stop_requests import STACKS, STACKS_OF_STUCK
from launchers.watched import describe_exit
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE

_KILL_SECONDS = 5.0
_RESEND_SECONDS = 5.0
_OUT_OF_MEMORY = 253  # Of srun, if Slurm or the kernel has killed the step for its memory.
_MAX_MESSAGES = 1 << 20
# Run by sh on a node's host. The first line on stderr is the step's number; heartbeats and messages of
# srun follow.
STEP = f'echo "$SLURM_STEP_ID" >&2; exec 3>&2; exec env {heartbeat.VARIABLE}=3 "$@" 2>&1'


class SlurmNode:
  """A node that runs as a job step; a `watched.Node`."""

  def __init__(
    self, name: str, log_path: str, resources: Resources, command: Sequence[str], job_id: str
  ):
    self.name = name
    self.log_path = log_path
    self.resources = resources
    self._command = command
    self._job_id = job_id
    self._starts = 0
    self.restart()

  def can_restart(self) -> bool:
    """Returns True: Slurm can start another step on the host, as far as is known here."""
    return True

  def restart(self) -> None:
    """Starts the step, or restarts it after its exit."""
    self._killed = 0.0  # Monotonic time of the first SIGKILL, in seconds.
    self._unsent: int | None = None  # The signal that no `scancel` has confirmed yet.
    self._messages = tempfile.TemporaryFile()  # noqa: SIM115  unnamed, so that no file is left
    self._reclaimer = disk_space.Reclaimer(self._messages.fileno())
    self._offset = 0
    self._said = b''
    self._listener = heartbeat.Listener(self._new_beats)
    with open(self.log_path, 'ab') as log:
      self._srun = subprocess.Popen(
        self._command,
        env={**os.environ, RESTART_COUNT_VARIABLE: str(self._starts)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=self._messages,
        start_new_session=True,
      )
    self._starts += 1

  def exit_code(self) -> int | None:
    """Returns None while the step runs; -N if signal N killed it."""
    code = self._srun.poll()
    if code is None:
      self._resend()
      return None
    if not self._messages.closed:
      self._listener.poll()
      if not self._step():  # The node never started. The disk of its log may be full.
        with contextlib.suppress(OSError), open(self.log_path, 'ab') as log:
          log.write(self._said)
      self._messages.close()
    beat = self._listener.beat
    if code == 0 and not (beat and beat.returned):
      return child_process.EXITED_EARLY
    if code == _OUT_OF_MEMORY:
      return -signal.SIGKILL
    return 128 - code if code - 128 in set(signal.Signals) else code

  def ending(self) -> str:
    """Returns how the node ended."""
    code = self.exit_code()
    assert code is not None
    out_of_memory = self._srun.poll() == _OUT_OF_MEMORY
    return describe_exit(code) + (', because its step was out of memory' if out_of_memory else '')

  def beat(self) -> tuple[heartbeat.Beat | None, float]:
    """Returns the latest heartbeat and its age in seconds; before the first, None and the run time."""
    if not self._messages.closed:
      self._listener.poll()
    return self._listener.beat, self._listener.age()

  def is_stopped(self) -> bool:
    """Returns False: the state of a process on another host is not known here."""
    return False

  def send(self, number: int) -> None:
    """Signals every process of the step. SIGKILL, or a stop before its start, ends it at once."""
    if self._srun.poll() is not None:
      return
    step = self._step()
    if number in (STACKS, STACKS_OF_STUCK) and not step:
      return
    if number != signal.SIGKILL and step:
      self._unsent = number
      self._scancel(step)
    elif not self._killed:
      self._killed = time.monotonic()
      self._srun.terminate()  # srun then kills the step at once.
    elif time.monotonic() - self._killed > _KILL_SECONDS:
      self._srun.kill()

  def _scancel(self, step: str) -> None:
    assert self._unsent is not None
    name = signal.Signals(self._unsent).name.removeprefix('SIG')
    self._sending: subprocess.Popen | None = None
    self._sent_at = time.monotonic()
    with contextlib.suppress(OSError):  # Out of processes or memory: `_resend` tries again.
      self._sending = subprocess.Popen(  # Complains if the step has just ended.
        ['scancel', f'--signal={name}', step], stderr=subprocess.DEVNULL
      )

  def _resend(self) -> None:
    """Sends the last signal again if its `scancel` has failed."""
    if self._unsent is None:
      return
    code = self._sending.poll() if self._sending is not None else 1
    if code == 0:
      self._unsent = None
    elif code is not None and time.monotonic() - self._sent_at > _RESEND_SECONDS:
      self._scancel(self._step())

  def _step(self) -> str:
    """Returns Slurm's id of the step; empty until the node's process is about to start."""
    self._listener.poll()
    for line in self._said.splitlines():
      if line.isdigit():
        return f'{self._job_id}.{line.decode()}'
    return ''

  def _new_beats(self) -> bytes:
    """Returns new heartbeats, and stores other messages."""
    if self._messages.closed:
      return b''
    new = os.pread(self._messages.fileno(), _MAX_MESSAGES, self._offset)
    new = new[: new.rfind(b'\n') + 1]
    self._offset += len(new)
    self._reclaimer.reclaim(self._offset)
    beats = []
    for line in new.splitlines(keepends=True):
      if line.startswith(b'{'):
        beats.append(line)
      else:
        self._said += line
    return b''.join(beats)
