"""A node that runs as a step of a Slurm job."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from launchers import supervise
from launchers.placement import Resources

_KILL_SECONDS = 5.0
# Run by sh on a node's host: srun's own messages have stderr to themselves, after the step's number.
STEP = 'echo "$SLURM_STEP_ID" >&2; exec env "$@" 2>&1'


class SlurmNode:
  """A node that runs as a job step; a `supervise.Node`."""

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
    self._messages = tempfile.TemporaryFile()  # noqa: SIM115  has no name, so that nothing is left
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
    if code is not None and not self._messages.closed:
      if not self._step():  # The node never started: what srun says is all there is.
        with open(self.log_path, 'ab') as log:
          log.write(self._said())
      self._messages.close()
    return code if code is None or code <= 128 else 128 - code

  def ending(self) -> str:
    """Says how it ended."""
    code = self.exit_code()
    assert code is not None
    return supervise.describe_exit(code)

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
    for line in self._said().splitlines():
      if line.isdigit():
        return f'{self._job_id}.{line.decode()}'
    return ''

  def _said(self) -> bytes:
    return os.pread(self._messages.fileno(), 1 << 16, 0)
