"""Actors as threads of the process that infers for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from absl import logging

from environments.base import Exhausted
from nodes.inference.client import ActingServer
from nodes.inference.environment_loop import EnvironmentLoop
from nodes.inference.serving import ActorThread
from nodes.runtime import activity, lifecycle
from nodes.runtime.watchdog import Watchdog

_JOIN_SECONDS = 2.0  # Less than a node has from the request to stop until its process exits.


class ActorThreads:
  """Steps the environments of each actor in a thread. The process fails with any of them."""

  def __init__(self, actors: Sequence[ActorThread], inference: ActingServer):
    """Initialises the threads; `start` starts them.

    Args:
      actors: what each of them plays.
      inference: the inference server of this process.
    """
    self._actors, self._inference = actors, inference
    self._loops: list[EnvironmentLoop] = []
    self._watches: list[Watchdog] = []
    self._threads: list[threading.Thread] = []
    self._stopping = threading.Event()
    self._error: BaseException | None = None

  def start(self) -> None:
    """Starts to act. Call it from the node's own thread."""
    stop_program = lifecycle.program_stopper()
    for actor in self._actors:
      loop = EnvironmentLoop(self._inference, *actor)
      watch = Watchdog(f'making or stepping the environments of {actor.actor_id}')
      arguments = actor.actor_id, loop, watch, stop_program
      thread = threading.Thread(target=self._run, args=arguments, name=actor.actor_id, daemon=True)
      self._loops.append(loop)
      self._watches.append(watch)
      self._threads.append(thread)
      thread.start()

  def check(self) -> None:
    """Raises the error of the first actor that failed, if any, or TimeoutError if one hangs."""
    if self._error is not None:
      raise self._error
    for watch in self._watches:
      watch.check()

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the shares of the last `seconds` in which actors stepped and waited; {} without actors."""
    shares = [loop.measure(seconds) for loop in self._loops]
    return {name: sum(each[name] for each in shares) / len(shares) for name in (shares or [{}])[0]}

  def stop(self) -> None:
    """Asks the actors to stop, which they do at their next action."""
    self._stopping.set()

  def join(self) -> None:
    """Waits a moment until the actors have closed their environments."""
    end = time.monotonic() + _JOIN_SECONDS
    for thread in self._threads:
      thread.join(max(0.0, end - time.monotonic()))

  def _run(
    self,
    actor_id: str,
    loop: EnvironmentLoop,
    watch: Watchdog,
    stop_program: Callable[[], None],
  ) -> None:
    watched = True  # It makes and resets its environments.
    watch.__enter__()

    def mark(doing: activity.Activity) -> None:
      nonlocal watched
      if watched:
        watch.__exit__()
      watched = doing is activity.PLAYING
      if watched:
        watch.__enter__()

    try:
      loop.run(self._stopping.is_set, mark)
    except Exhausted:
      stop_program()
    except BaseException as error:
      if self._error is None and not self._stopping.is_set():
        logging.error('%s has failed.', actor_id)
        self._error = error
    finally:
      if watched:
        watch.__exit__()
