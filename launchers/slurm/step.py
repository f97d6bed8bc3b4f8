"""A node that runs as a step of a Slurm job."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from launchers import child_process, heartbeat
from launchers.placement import Resources
from launchers.watched import describe_exit

_KILL_SECONDS = 5.0
_MAX_MESSAGES = 1 << 20
# Run by sh on a node's host. The step's number comes first on stderr, which is then left to heartbeats
# and to the messages of srun.
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
    self._life = 0
    self.restart()

  def can_restart(self) -> bool:
    """Whether it can be started again: as a step on its host, as far as can be known here."""
    return True

  def restart(self) -> None:
    """Starts the step, again if it has ended."""
    self._killed = 0.0  # When its step was, in seconds.
    self._messages = tempfile.TemporaryFile('a+b')  # noqa: SIM115  has no name, so that nothing is left
    self._offset = 0
    self._said = b''
    self._listener = heartbeat.Listener(self._new_beats)
    with open(self.log_path, 'ab') as log:
      self._srun = subprocess.Popen(
        self._command,
        env={**os.environ, 'LAUNCHPOD_LIFE': str(self._life)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=self._messages,
        start_new_session=True,
      )
    self._life += 1

  def exit_code(self) -> int | None:
    """Returns None while the step runs; -N if signal N killed it."""
    code = self._srun.poll()
    if code is None:
      return None
    if not self._messages.closed:
      self._listener.poll()
      if not self._step():  # The node never started: what srun says is all there is.
        with open(self.log_path, 'ab') as log:
          log.write(self._said)
      self._messages.close()
    beat = self._listener.beat
    if code == 0 and not (beat and beat.returned):
      return child_process.LEFT
    return 128 - code if code > 128 else code

  def ending(self) -> str:
    """Says how it ended."""
    code = self.exit_code()
    assert code is not None
    return describe_exit(code)

  def beat(self) -> tuple[heartbeat.Beat | None, float]:
    """Returns its latest heartbeat and how long ago that came; before the first, since the start."""
    if not self._messages.closed:
      self._listener.poll()
    return self._listener.beat, self._listener.age()

  def send(self, number: int) -> None:
    """Signals every process of the step; one that is to be killed, or has none yet, ends at once."""
    if self._srun.poll() is not None:
      return
    step = self._step()
    if number != signal.SIGKILL and step:
      name = signal.Signals(number).name.removeprefix('SIG')
      self._scancel = subprocess.Popen(  # Which complains if the step ends just then.
        ['scancel', f'--signal={name}', step], stderr=subprocess.DEVNULL
      )
    elif not self._killed:
      self._killed = time.monotonic()
      self._srun.terminate()  # At which it has the step killed at once.
    elif time.monotonic() - self._killed > _KILL_SECONDS:
      self._srun.kill()

  def _step(self) -> str:
    """Returns what Slurm calls the step; empty until the node's process is about to start."""
    self._listener.poll()
    for line in self._said.splitlines():
      if line.isdigit():
        return f'{self._job_id}.{line.decode()}'
    return ''

  def _new_beats(self) -> bytes:
    """Returns the heartbeats that have come, and keeps what else has."""
    if self._messages.closed:
      return b''
    new = os.pread(self._messages.fileno(), _MAX_MESSAGES, self._offset)
    new = new[: new.rfind(b'\n') + 1]
    self._offset += len(new)
    if self._offset > _MAX_MESSAGES:  # srun appends, wherever the end is.
      os.ftruncate(self._messages.fileno(), 0)
      self._offset = 0
    beats = []
    for line in new.splitlines(keepends=True):
      if line.startswith(b'{'):
        beats.append(line)
      else:
        self._said += line
    return b''.join(beats)
