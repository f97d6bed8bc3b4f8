"""The actor: environments and an RPC client, nothing else. Imports neither JAX nor TensorFlow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import dm_env
import numpy as np

from agents.seeding import Seed
from environments.base import BatchedEnvironment, Exhausted
from nodes.inference import codec
from nodes.inference.client import Connectable, RetryingClient
from nodes.runtime import activity, lifecycle
from nodes.runtime.reporter import Reporter


class RemotePolicy:
  """One stream's conversation with the inference server."""

  def __init__(
    self,
    inference: Connectable,
    actor_id: str,
    incarnation: int,
    group: int,
    should_stop: Callable[[], bool],
  ):
    """Initialises a conversation.

    Args:
      inference: the server, as it can be connected to.
      actor_id: this process, as declared to the server.
      incarnation: the identity of this life of the process.
      group: which of its environment groups.
      should_stop: polled while an answer is awaited.
    """
    self._conversation = RetryingClient(inference, should_stop, f'{actor_id}, group {group}')
    self._identity = (lifecycle.run_token(), actor_id, incarnation, group)
    self._sequence = -1

  def send(self, timestep: dm_env.TimeStep, game_over: np.ndarray | None = None) -> None:
    """Asks for actions, without waiting; `game_over` is the environment's."""
    self._sequence += 1
    games = () if game_over is None else (game_over,)
    self._conversation.send(codec.pack(*self._identity, self._sequence, *timestep, *games))

  def receive(self) -> np.ndarray | None:
    """Waits for the actions `[N, ...]`; None when the server says that training has finished.

    Raises:
      ValueError: if the server refuses the timestep, or serves another life of the actor instead.
      lifecycle.Stopped: when `should_stop` says so.
    """
    action, *refusal = codec.unpack(self._conversation.receive())
    if refusal:
      raise ValueError(refusal[0])
    return action

  def close(self) -> None:
    """Ends the conversation."""
    self._conversation.close()


class Actor:
  """Steps groups of environments, each with the actions that the inference server sends.

  With two groups, one is stepped while the other waits for its actions.
  """

  def __init__(
    self,
    make_environment: Callable[[int, int], BatchedEnvironment],
    inference: Connectable,
    monitor: Any,
    actor_id: str,
    num_envs: int,
    env_groups: int,
    seed: Seed,
  ):
    """Initialises an actor; its environments are made in `run`.

    Args:
      make_environment: takes (number of environments, seed).
      inference: the inference server, as it can be connected to.
      monitor: Courier client of the monitor.
      actor_id: such as 'actor/3'.
      num_envs: environments of this actor.
      env_groups: into how many groups they are split.
      seed: different for every actor.
    """
    self._make_environment = make_environment
    self._inference = inference
    self._actor_id = actor_id
    self._num_envs = num_envs
    self._env_groups = env_groups
    self._seed = seed
    self._stepping = 0.0
    self._waiting = 0.0
    self._measured = (0.0, 0.0)
    self._reporter = Reporter(monitor, actor_id, self._measure, period=2.0)

  def run(self) -> None:
    """Acts until the server says that training has finished, or the program stops.

    An environment that has nothing more to play stops the program.

    Raises:
      ValueError: if the server refuses a timestep, or serves another life of this actor instead.
    """
    should_stop = lifecycle.stop_event().is_set
    incarnation = lifecycle.new_incarnation()
    size = self._num_envs // self._env_groups
    # No life plays another's episodes again.
    seed = self._seed.child('life', lifecycle.restart_count(), 'environments')
    with self._reporter, contextlib.ExitStack() as opened:
      groups = []
      for group in range(self._env_groups):
        environment = self._make_environment(size, seed.child(group).number())
        opened.callback(environment.close)
        policy = RemotePolicy(self._inference, self._actor_id, incarnation, group, should_stop)
        opened.callback(policy.close)
        policy.send(environment.reset())
        groups.append((environment, policy))
      try:
        while self._step(groups):
          self._reporter.maybe_report()
      except lifecycle.Stopped:
        pass
      except Exhausted:
        lifecycle.stop_program()

  def _step(self, groups: list[tuple[BatchedEnvironment, RemotePolicy]]) -> bool:
    for environment, policy in groups:
      started = time.monotonic()
      activity.mark(activity.WAITING_FOR_ACTIONS)
      action = policy.receive()
      received = time.monotonic()
      self._waiting += received - started
      if action is None:
        return False
      activity.mark(activity.PLAYING)
      policy.send(environment.step(action), environment.game_over)
      self._stepping += time.monotonic() - received
    return True

  def _measure(self, seconds: float) -> dict[str, float]:
    stepping, waiting = self._measured
    self._measured = self._stepping, self._waiting
    return {
      'stepping_share': (self._stepping - stepping) / seconds,
      'waiting_share': (self._waiting - waiting) / seconds,
    }


class Policy(Protocol):
  """Whoever answers a batch of timesteps: `RemotePolicy`, or one in this process."""

  def send(self, timestep: dm_env.TimeStep) -> None:
    """Takes the timesteps `[N]`."""

  def receive(self) -> np.ndarray | None:
    """Returns the actions `[N, ...]`; None when there are to be no more."""


class Episode(NamedTuple):
  """An episode that has ended; a whole game, where an episode is less (see `game_over`)."""

  episode_return: float  # Raw.
  length: int  # Steps.


def episodes(
  environment: BatchedEnvironment, policy: Policy, episodes_each: int
) -> Iterator[Episode]:
  """Yields each episode as it ends, `episodes_each` from every environment.

  Taking as many from each environment keeps short episodes from being counted more often.
  """
  timestep = environment.reset()
  returns = np.zeros(environment.num_envs)
  lengths = np.zeros(environment.num_envs, int)
  finished = np.zeros(environment.num_envs, int)
  while (finished < episodes_each).any():
    activity.mark(activity.WAITING_FOR_ACTIONS)
    policy.send(timestep)
    action = policy.receive()
    if action is None:
      raise lifecycle.Stopped
    activity.mark(activity.PLAYING)
    timestep = environment.step(action)
    returns += timestep.reward
    lengths += timestep.step_type != dm_env.StepType.FIRST
    over = environment.game_over
    if over is None:
      over = timestep.step_type == dm_env.StepType.LAST
    taken = over & (finished < episodes_each)
    yield from map(Episode, returns[taken].tolist(), lengths[taken].tolist())
    finished += over
    returns[over], lengths[over] = 0.0, 0


def episode_returns(
  environment: BatchedEnvironment, policy: Policy, episodes_each: int
) -> Iterator[float]:
  """Yields the raw return of each of `episodes`."""
  for episode in episodes(environment, policy, episodes_each):
    yield episode.episode_return
