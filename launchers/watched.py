"""A node through all its lives: when it is started again, and whether it hangs."""

from __future__ import annotations

import signal
import time
from typing import Generic, Protocol, TypeVar

from launchers import child_process, restart
from launchers.heartbeat import Beat
from launchers.placement import Resources
from launchers.requests import STACKS

# How much longer than at work a node may be silent while its process starts.
START_FACTOR = 4.0
# A hanging node has this long to write its stacks before it is killed.
STACKS_SECONDS = 2.0


class Node(Protocol):
  """A running node, as an engine shows it to the supervision."""

  @property
  def name(self) -> str:
    """What to call it in a message: label and index, and then perhaps where, as in 'actor/3 on h1'."""

  @property
  def log_path(self) -> str:
    """The file on this machine that has its output; complete once it has exited."""

  @property
  def resources(self) -> Resources:
    """Those of its group; what they say about restarts is heeded here."""

  def exit_code(self) -> int | None:
    """Returns None while it runs; -N if signal N killed it. Does not block.

    `child_process.LEFT` if it has left with code 0 before its work returned.
    """

  def ending(self) -> str:
    """Says how it ended, as in 'exited with code 1'."""

  def beat(self) -> tuple[Beat | None, float]:
    """Returns the latest heartbeat of this life, None before the first, and its age in seconds.

    Before the first it is the age of this life. Does not block.
    """

  def send(self, number: int) -> None:
    """Signals its process, if it still runs, and whatever that has started. Does not block."""

  def can_restart(self) -> bool:
    """Whether there is a way to start it again after its latest end."""

  def restart(self) -> None:
    """Starts it again, once it has exited, at the addresses it had. Its log goes on.

    LAUNCHPOD_LIFE in its environment says how often it has been started before.

    Raises:
      OSError: if it cannot be started now.
    """


def describe_exit(code: int) -> str:
  """Says what an exit code means."""
  if code == child_process.LEFT:
    return 'left with exit code 0 before its work was done'
  return f'was killed by {signal.Signals(-code).name}' if code < 0 else f'exited with code {code}'


N = TypeVar('N', bound=Node)


class Watched(Generic[N]):
  """A node, its restarts and its silence.

  Attributes:
    node: as its engine shows it.
    problem: why it could not be started again, if it could not; '' otherwise.
  """

  def __init__(self, node: N):
    self.node = node
    self.problem = ''
    self._began = time.monotonic()
    self._record = restart.Record(node.resources)
    self._due: float | None = None
    self._kill_at: float | None = None
    self._hung = 0.0

  def exit_code(self) -> int | None:
    """Returns None while the node runs or is to run again."""
    return None if self._due is not None else self.node.exit_code()

  def schedule_restart(self, code: int) -> str:
    """Schedules a restart after a failure; returns a sentence about it, or '' if there is none."""
    code = -signal.SIGKILL if self.problem else code  # No defect of the node's own.
    # The time in which it hung is no time that it has run for.
    delay = self._record.delay(code, time.monotonic() - self._began - self._hung)
    if delay is None or not self.node.can_restart():
      return ''
    self._due = time.monotonic() + delay
    how = self.problem or self.node.ending()
    return (
      f'node {self.node.name} {how}; starting it again in {delay:g} s '
      f'({self._record.failures} of {self.node.resources.max_restarts} restarts in a row)'
    )

  def restart_if_due(self) -> None:
    """Restarts the node when that is due. A start that fails is a failure of the node."""
    if self._due is None or time.monotonic() < self._due:
      return
    self._due, self._kill_at, self._hung = None, None, 0.0
    self._began = time.monotonic()
    try:
      self.node.restart()
      self.problem = ''
    except OSError as error:  # No process, memory or descriptor is free just now.
      self.problem = f'cannot be started again ({error})'

  def beat(self) -> Beat | None:
    """Returns the latest heartbeat of the present life; None before the first, or between lives."""
    return None if self._due is not None else self.node.beat()[0]

  def kill_if_hung(self, timeout: float, attentive: float) -> str:
    """Kills the node if it hangs, once its stacks are in its log; returns a sentence, or ''.

    Args:
      timeout: --node_timeout, in seconds.
      attentive: for how many seconds this process has been watching without a pause.
    """
    if self.exit_code() is not None or self._due is not None:
      return ''
    now = time.monotonic()
    if self._kill_at is not None:
      if now >= self._kill_at:
        self.node.send(signal.SIGKILL)  # On another machine it takes a while to be seen.
      return ''
    hang = self._hang(timeout, attentive)
    if not hang:
      return ''
    self.node.send(STACKS)
    self._kill_at = now + STACKS_SECONDS
    return (
      f'node {self.node.name} {hang}, longer than --node_timeout={timeout:g} allows; killing it, its '
      f'stacks are in {self.node.log_path}'
    )

  def _hang(self, timeout: float, attentive: float) -> str:
    beat, age = self.node.beat()
    silence = min(age, attentive)
    if silence > (START_FACTOR if beat is None else 1.0) * timeout:
      self._hung = silence
      return f'has sent no heartbeat for {silence:.0f} s'
    if beat is not None and age < timeout and beat.unmarked > beat.patience * timeout:
      self._hung = beat.unmarked
      return f'has made no progress for {beat.unmarked:.0f} s ({beat.doing})'
    return ''

  def stop(self) -> None:
    """Stops the node, or cancels its restart."""
    self._due = None
    self.node.send(signal.SIGTERM)
