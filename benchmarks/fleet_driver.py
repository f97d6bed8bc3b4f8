"""Runs many light actors in one process: python -m benchmarks.fleet_driver TASK, a JSON object.

Prints 'ready' when every actor has a reply, measures from one line of its stdin to the next, and prints
the counts as JSON. Imports neither JAX nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import os
import selectors
import sys
import threading
import time
from typing import Any

import numpy as np

from environments import registry as environments
from nodes.inference.client import ServerAddress, packed
from nodes.runtime import lifecycle, open_files

_RECORDED = 32


@dataclasses.dataclass(frozen=True)
class Task:
  """The task of a driver.

  Attributes:
    address: address of the inference node.
    env: the environment whose timesteps are recorded.
    env_options: options of the environment.
    num_envs: environments of an actor.
    actors: indices of the actors.
    delay: seconds between a reply and the next request.
  """

  address: str
  env: str
  env_options: str
  num_envs: int
  actors: tuple[int, ...]
  delay: float


def record(task: Task) -> list[Any]:
  """Returns `_RECORDED` successive timesteps of an environment under a constant action."""
  environment = environments.make(task.env, task.num_envs, 0, task.env_options)
  spec = environment.action_spec()
  action = np.broadcast_to(spec.generate_value(), (task.num_envs, *spec.shape))
  timesteps = [environment.reset()]
  timesteps += [environment.step(action) for _ in range(_RECORDED - 1)]
  environment.close()
  return timesteps


class Driver:
  """Sends the requests of all its actors from one thread, over one connection per actor."""

  def __init__(self, task: Task):
    self._task = task
    self._timesteps = record(task)
    self._run = lifecycle.run_token()
    self._incarnation = lifecycle.new_incarnation()
    self._sequences = dict.fromkeys(task.actors, 0)
    self._asked = dict.fromkeys(task.actors, 0.0)
    self._connections = {actor: ServerAddress(task.address).connect() for actor in task.actors}
    self._latencies: list[float] | None = None
    self._measuring = threading.Lock()
    self.ready = threading.Event()
    self.error: BaseException | None = None

  def run(self) -> None:
    """Sends requests until the process ends; on failure sets `error`."""
    selector = selectors.DefaultSelector()
    for actor, connection in self._connections.items():
      selector.register(connection, selectors.EVENT_READ, actor)
    try:
      for actor in self._task.actors:
        self._ask(actor)
      waiting: list[tuple[float, int]] = []
      answered: set[int] = set()
      while True:
        timeout = max(waiting[0][0] - time.monotonic(), 0.0) if waiting else None
        for key, _ in selector.select(timeout):
          if self._connections[key.data].receive() is None:
            continue
          came = time.monotonic()
          with self._measuring:
            if self._latencies is not None:
              self._latencies.append(came - self._asked[key.data])
          heapq.heappush(waiting, (came + self._task.delay, key.data))
          if not self.ready.is_set():
            answered.add(key.data)
            if len(answered) == len(self._task.actors):
              self.ready.set()
        while waiting and waiting[0][0] <= time.monotonic():
          self._ask(heapq.heappop(waiting)[1])
    except BaseException as error:
      self.error = error
      self.ready.set()

  def begin(self) -> None:
    """Starts to record latencies."""
    with self._measuring:
      self._latencies = []

  def end(self) -> list[float]:
    """Returns the latencies since `begin`, in seconds."""
    with self._measuring:
      latencies, self._latencies = self._latencies, None
    if self.error is not None:
      raise self.error
    return latencies or []

  def _ask(self, actor: int) -> None:
    sequence = self._sequences[actor]
    self._sequences[actor] += 1
    # Each actor is at a different position of the recording.
    timestep = self._timesteps[(sequence + actor) % len(self._timesteps)]
    request = self._run, f'actor/{actor}', self._incarnation, 0, sequence, *timestep
    connection = self._connections[actor]
    self._asked[actor] = time.monotonic()
    connection.send(packed(connection, request))


def main(argv: list[str]) -> None:
  """Runs the actors of a task. Does not return."""
  open_files.allow_many()  # One is the connection of each actor.
  driver = Driver(Task(**json.loads(argv[1])))
  threading.Thread(target=driver.run, daemon=True).start()
  driver.ready.wait()
  print('ready', flush=True)
  sys.stdin.readline()
  used, started = time.process_time(), time.monotonic()
  driver.begin()
  sys.stdin.readline()
  latencies = driver.end()
  seconds = time.monotonic() - started
  counted = {'seconds': seconds, 'cpu': time.process_time() - used, 'latencies': latencies}
  print(json.dumps(counted), flush=True)
  os._exit(0)  # Requests are still in flight.


if __name__ == '__main__':
  main(sys.argv)
