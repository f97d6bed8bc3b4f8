"""A node across its incarnations: schedules restarts and detects hangs."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from typing import Protocol

from launchers import child_process, restart
from launchers.heartbeat import PERIOD_SECONDS, Beat, find_hang
from launchers.placement import Resources
from launchers.stop_requests import STACKS, for_stacks
from nodes.runtime import activity
from rundir import node_files
from rundir.errors import NonRetryableError

# Time for a hanging node to write its stacks before it is killed.
STACKS_SECONDS = 2.0
# A node of a job raises when another one is lost, perhaps before this process sees the end of the other.
CAUSE_SECONDS = 2.0
# A node starts up as long as it does these and has not done any of its work.
_START_UP = {
  each.name
  for each in (
    activity.STARTING,
    activity.RESTORING,
    activity.COMPILING,
    activity.WAITING_FOR_ACTIONS,
    activity.WAITING_FOR_PARAMETERS,
    activity.WAITING_FOR_REPLAY,
    activity.WAITING_FOR_PEERS,
    activity.WAITING_FOR_REPLICAS,
  )
}


class Node(Protocol):
  """The interface through which the supervision sees a running node of any engine."""

  @property
  def name(self) -> str:
    """Name in messages: label and index, optionally with the machine, as in 'actor/3 on h1'."""

  @property
  def log_path(self) -> str:
    """The file on this machine that receives its output; complete once the node has exited."""

  @property
  def resources(self) -> Resources:
    """Resources of its group; the supervision applies their restart policy."""

  def exit_code(self) -> int | None:
    """Returns None while it runs; -N if signal N killed it. Does not block.

    Returns `child_process.EXITED_EARLY` if the node exited with code 0 before its work returned.
    """

  def ending(self) -> str:
    """Returns how the node ended, as in 'exited with code 1'."""

  def beat(self) -> tuple[Beat | None, float]:
    """Returns the latest heartbeat of this incarnation and its age in seconds. Does not block.

    Before the first heartbeat, returns None and the age of the incarnation.
    """

  def is_stopped(self) -> bool:
    """Returns whether its process is known to be stopped, as by SIGSTOP. Does not block."""

  def send(self, number: int) -> None:
    """Signals its process, if it still runs, and the children of that process. Does not block."""

  def can_restart(self) -> bool:
    """Returns whether the node can be restarted after its latest exit."""

  def restart(self) -> None:
    """Restarts the node, after it has exited, at the same addresses. Output is appended to its log.

    LAUNCHPOD_RESTART_COUNT in its environment is the number of earlier starts.

    Raises:
      OSError: if it cannot be started now.
    """


def describe_exit(code: int) -> str:
  """Returns an exit code in words."""
  if code == child_process.EXITED_EARLY:
    return 'exited with code 0 before its work was done'
  if code >= 0:
    return f'exited with code {code}'
  known = -code in set(signal.Signals)  # Real-time signals mostly have no name.
  return f'was killed by {signal.Signals(-code).name if known else f"signal {-code}"}'


class Watched[N: Node]:
  """A node with its restart record and its hang detection.

  Attributes:
    node: the node of the engine.
    beat: the latest heartbeat of this incarnation that `listen` has read; None before the first and
      during a restart.
    job: the nodes that fail and restart together: those of its multi-process job, or itself alone.
    problem: why the last restart failed; '' if it did not.
  """

  def __init__(self, node: N):
    self.node = node
    self.beat: Beat | None = None
    self.job: Sequence[Watched[N]] = (self,)
    self.problem = ''
    self._began = time.monotonic()
    self._has_worked = False
    self._record = restart.Record(node.resources)
    self._failed_at: float | None = None
    self._due: float | None = None
    self._kill_at: float | None = None
    self._hung = 0.0
    self._asked_for_stacks: float | None = None

  def join(self, job: Sequence[Watched[N]]) -> None:
    """Makes it one of the nodes of a job, which have one restart record."""
    self.job, self._record = job, job[0]._record

  def exit_code(self) -> int | None:
    """Returns None while the node runs or awaits a restart; -9 if it could not be restarted."""
    if self._due is not None:
      return None
    return -signal.SIGKILL if self.problem else self.node.exit_code()  # Not a defect of the node.

  def failure(self) -> int:
    """Returns the exit code of a failure that is to be handled now; 0 if there is none.

    A node of a job that has raised is handled once the others have ended as well, or have had
    `CAUSE_SECONDS` to do so.
    """
    code = self.exit_code()
    if not code:
      return 0
    if self._failed_at is None:
      self._failed_at = time.monotonic()
    if code > 0 and time.monotonic() < self._failed_at + CAUSE_SECONDS:
      return code if all(each.exit_code() is not None for each in self.job) else 0
    return code

  def precedence(self) -> tuple[bool, bool, float]:
    """Returns a key by which failures are sorted; the cause of others comes first.

    A killed node may have caused the failures of others. A failure that no restart can fix comes before
    other exceptions, and an earlier failure before a later one.
    """
    code = self.exit_code() or 0
    return code >= 0, code != NonRetryableError.exit_code, self._failed_at or 0.0

  def schedule_restart(self, code: int) -> str:
    """Schedules a restart of the job after a failure of this node, and kills the other nodes.

    Returns:
      A sentence about it; '' if no restart is allowed.
    """
    # Time spent hanging does not count as run time.
    delay = self._record.delay(code, time.monotonic() - self._began - self._hung)
    if delay is None or not self._can_restart():
      return ''
    due = time.monotonic() + delay
    for each in self.job:
      each._due = due
    self._kill_job()
    how = self.problem or self.node.ending()
    what = f'all {len(self.job)} nodes of its job ' if len(self.job) > 1 else ''
    return (
      f'node {self.node.name} {how}; restarting {what}in {delay:g} s ({self._record.standing()})'
    )

  def restart_if_due(self) -> None:
    """Restarts its job when that is due and every node of it has exited.

    A failed start counts as a failure of the node.
    """
    if self._due is None or time.monotonic() < self._due or not self._kill_job():
      return
    if self._can_restart():
      for each in self.job:
        each._restart()
    else:  # Another node of the job turns out to be lost; its failure is handled.
      for each in self.job:
        each._due = None

  def _can_restart(self) -> bool:
    return all(each.node.can_restart() for each in self.job)

  def _kill_job(self) -> bool:
    """Kills the nodes of its job that still run; returns whether there is none left."""
    running = [each.node for each in self.job if each.node.exit_code() is None]
    for node in running:
      node.send(signal.SIGKILL)
    return not running

  def _restart(self) -> None:
    self._due, self._kill_at, self._hung, self._failed_at = None, None, 0.0, None
    self._began, self._has_worked = time.monotonic(), False
    try:
      self.node.restart()
      self.problem = ''
    except OSError as error:  # Out of processes, memory or descriptors.
      self.problem = f'cannot be restarted ({error})'

  def listen(self) -> None:
    """Reads the heartbeat, and excludes the start-up of this incarnation from its run time.

    Otherwise a learner that compiles for minutes, and fails in its first update, restarts without end.
    Called often.
    """
    self.beat = None if self._due is not None else self.node.beat()[0]
    if self._has_worked or self.beat is None:
      return
    if self.beat.doing in _START_UP:
      self._began = time.monotonic()
    self._has_worked = self.beat.has_worked

  def kill_if_hung(self, timeout: float, listening_seconds: float) -> str:
    """Kills a hanging node once its stacks are in its log; returns a sentence, or ''.

    Args:
      timeout: --node_timeout, in seconds.
      listening_seconds: seconds that this process has supervised without being suspended.
    """
    if self.exit_code() is not None or self._due is not None:
      return ''
    now = time.monotonic()
    if self._kill_at is not None:
      if now >= self._kill_at:
        self.node.send(signal.SIGKILL)  # The exit of a remote node is seen later.
      return ''
    hang, seconds = find_hang(*self.node.beat(), timeout, listening_seconds)
    if not hang:
      return ''
    self._hung = seconds
    sentence = f'node {self.node.name} {hang}, longer than --node_timeout={timeout:g} allows; '
    if self.node.is_stopped():  # It could not write its stacks.
      self._kill_at = now
      return f'{sentence}killing it, because a signal such as SIGSTOP has stopped its process'
    self.write_stacks()
    self._kill_at = now + STACKS_SECONDS
    return f'{sentence}killing it, its stacks are in {self.node.log_path}'

  def write_stacks(self) -> None:
    """Has the node write the stacks of its threads to its log; see also `insist_on_stacks`."""
    beat, age = self.node.beat()
    number = for_stacks(age if beat is not None else 0.0)
    self.node.send(number)
    self._asked_for_stacks = time.monotonic() if number == STACKS else None

  def insist_on_stacks(self) -> None:
    """Asks again once it is clear that no Python has run since `write_stacks`; called often."""
    if self._asked_for_stacks is None:
      return
    beat, age = self.node.beat()
    if beat is None:
      return
    # The first beats to arrive after the request may have been sent before it.
    if age < time.monotonic() - self._asked_for_stacks - PERIOD_SECONDS:
      self._asked_for_stacks = None
    elif for_stacks(age) != STACKS:
      self.write_stacks()

  def stop(self) -> None:
    """Stops the node, or cancels its restart."""
    self._due = None
    self.node.send(signal.SIGTERM)


def watch[N: Node](nodes: Sequence[N]) -> list[Watched[N]]:
  """Returns nodes with their supervision, in the same order; those of a multi-process job share it."""
  watched = [Watched(node) for node in nodes]
  jobs: dict[str, list[Watched[N]]] = {}
  for each in watched:
    if each.node.resources.one_job:
      jobs.setdefault(node_files.group(each.node.name), []).append(each)
  for job in jobs.values():
    for each in job:
      each.join(job)
  return watched
