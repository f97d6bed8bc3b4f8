"""The launcher's view of a node on a machine of a Ray cluster."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray

from launchers import binding
from launchers.heartbeat import Beat
from launchers.placement import Resources
from launchers.ray import supervisor
from launchers.stop_requests import DONE, STACKS, STACKS_OF_STUCK
from launchers.watched import describe_exit
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE

# Exit code of a lost node. It counts as a kill, not as an exception in the node.
LOST = -signal.SIGKILL
_POLL_SECONDS = 2.0


class RayNode:
  """A node and its supervisor actor; a `watched.Node`.

  Attributes:
    label: its group.
    num_ports: number of ports that it listens on.
    resources: those of its group.
    supervisor: its supervisor actor.
    reservation: Ray's future of its place.
    place: its machine and ports; None until Ray has placed it.
  """

  def __init__(
    self,
    label: str,
    num_ports: int,
    resources: Resources,
    code: supervisor.Code,
    create: Callable[[], Any],
    timeout: float,
    requests: list[int],
  ):
    """Requests a place from Ray without waiting for it.

    Args:
      label: its group.
      num_ports: number of ports that it listens on.
      resources: those of its group.
      code: the code that its machine must have.
      create: creates a supervisor actor on a machine that Ray chooses.
      timeout: seconds for Ray to find a place when the node must move.
      requests: receives `requests.DONE` when the node calls `lp.stop()`.
    """
    self.label = label
    self.num_ports = num_ports
    self.resources = resources
    self.name = label
    self.log_path = ''
    self.place: supervisor.Place | None = None
    self._machine_code = code
    self._create = create
    self._timeout = timeout
    self._requests = requests
    self._polled: Any = None
    self._restarting: Any = None
    self._sent: Any = None
    self._restarts = 0
    self._exit_code: int | None = None
    self._lost = ''
    self._not_restarted = ''
    self._is_stopped = False
    self._beat: Beat | None = None
    self._beat_at = time.monotonic()
    self._reserve()

  def start(
    self,
    task: binding.NodeTask,
    log_path: str,
    variables: Mapping[str, str],
    pem: bytes,
    moved: Callable[[], None],
  ) -> None:
    """Starts the node at its place without waiting for the process.

    Args:
      task: the node.
      log_path: the file that receives its output.
      variables: environment variables of the node.
      pem: the key and the certificate of the run.
      moved: called when the node has a new place.
    """
    self.log_path, self._variables, self._moved = log_path, variables, moved
    self._pem = pem
    self._title, self._file = task.name, f'{task.label}-{task.index}'
    with open(task.payload, 'rb') as f:
      self._payload = f.read()
    open(log_path, 'ab').close()  # Exists already in a resumed run.
    self._begin()

  @property
  def started(self) -> bool:
    """Whether the node was started at its place."""
    return self._polled is not None and not self._moving

  def exit_code(self) -> int | None:
    """Returns None while the node runs or waits for a new place."""
    if self._exit_code is None:
      heard = self._listen()
      if not heard and self._moving and time.monotonic() > self._move_until:
        self._lose(f'found no place on another machine in {self._timeout:g} s')
    return self._exit_code

  def ending(self) -> str:
    """Returns how the node ended."""
    assert self._exit_code is not None
    return self._lost or self._not_restarted or describe_exit(self._exit_code)

  def beat(self) -> tuple[Beat | None, float]:
    """Returns the latest heartbeat and its age in seconds; before the first, None and the run time."""
    return self._beat, time.monotonic() - self._beat_at

  def can_restart(self) -> bool:
    """Returns whether a restart is possible; not for a lost server, whose address its peers use."""
    return not (self._lost and self.num_ports)

  def restart(self) -> None:
    """Restarts the node on its machine, or on another one if its machine was lost."""
    self._exit_code, self._sent, self._not_restarted = None, None, ''
    self._beat, self._beat_at = None, time.monotonic()
    self._restarts += 1
    if self._lost:
      ray.kill(self.supervisor)
      self._lost = ''
      self._reserve()
      self._polled = self.reservation
      self._move_until = time.monotonic() + self._timeout
    else:
      self._polled = self._restarting = self.supervisor.restart.remote(self._restart_variable())

  def is_stopped(self) -> bool:
    """Returns whether its process was stopped, as by SIGSTOP, at the latest poll."""
    return self._is_stopped

  def send(self, number: int) -> None:
    """Signals the process. A node that waits for a new place has no stacks, and ends otherwise."""
    if self._exit_code is not None or (self._moving and number in (STACKS, STACKS_OF_STUCK)):
      return
    if self._moving and number == signal.SIGKILL:  # A stop begins with another signal.
      self._lose('has waited too long for a new machine')
    elif self._moving:
      self._exit_code = 0
    elif self._sent is None or ray.wait([self._sent], timeout=0)[0]:
      self._sent = self.supervisor.send.remote(int(number))

  @property
  def _moving(self) -> bool:
    return self._polled is self.reservation

  def _reserve(self) -> None:
    self.supervisor = self._create()
    self.reservation = self.supervisor.reserve.remote(self.num_ports, self._machine_code)

  def _begin(self) -> None:
    assert self.place is not None
    self.name = f'{self._title} on {self.place.ip}'
    self._offset = 0
    self._beat_at = time.monotonic()
    variables = {**self._variables, **self._restart_variable()}
    self._polled = self.supervisor.start.remote(self._file, self._payload, variables, self._pem)

  def _restart_variable(self) -> dict[str, str]:
    return {RESTART_COUNT_VARIABLE: str(self._restarts)}

  def _listen(self) -> bool:
    """Handles a reply of its supervisor, or the loss of it; returns whether there was any."""
    try:
      if not ray.wait([self._polled], timeout=0)[0]:
        return False
      self._handle_reply(ray.get(self._polled))
    except ray.exceptions.ActorUnavailableError:
      self._poll()  # Ray needs time to detect a lost machine.
    except ray.exceptions.RayTaskError as error:
      reason = first_line(error.cause)
      if self._polled is self._restarting:  # Its machine, and so its address, is still there.
        self._exit_code, self._not_restarted = LOST, f'could not be restarted ({reason})'
      else:
        self._lose(f'could not be supervised ({reason})')
    # An OSError if Ray has died on the machine of the launcher.
    except (ray.exceptions.RayError, OSError) as error:
      peers = '; it cannot move, because its peers know its address' if self.num_ports else ''
      self._lose(f'was lost with its machine or its Ray worker ({first_line(error)}){peers}')
    return True

  def _handle_reply(self, news: Any) -> None:
    if self._moving:
      if news.problem:
        self._lose(f'could not move to machine {news.machine}, which {news.problem}')
        return
      self.place = news
      self._begin()
      self._moved()
      return
    if news is not None:
      self._exit_code, self._is_stopped = news.exit_code, news.stopped
      if news.beat is not None:
        self._beat, self._beat_at = news.beat, time.monotonic() - news.age
      if news.output:
        with (
          contextlib.suppress(OSError),
          open(self.log_path, 'ab') as log,
        ):  # The disk may be full.
          log.write(news.output)
      self._offset = news.offset
      if news.stop_requested:
        self._requests.append(int(DONE))
    if self._exit_code is None:
      self._poll()

  def _poll(self) -> None:
    self._polled = self.supervisor.poll.remote(self._offset, _POLL_SECONDS)

  def _lose(self, how: str) -> None:
    self._exit_code, self._lost = LOST, how


def first_line(error: Any) -> str:
  """Returns the first line of an error's text, or its class if it has none."""
  return next(iter(str(error).strip().splitlines()), type(error).__name__)
