"""Plays whole episodes in a batch of environments, and records videos of them."""

from __future__ import annotations

import collections
import contextlib
import io
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import dm_env
import numpy as np
from absl import logging

from environments import nests
from environments.base import BatchedEnvironment
from nodes.inference.client import ActingServer
from nodes.runtime import activity, lifecycle


class Policy(Protocol):
  """Chooses actions for a batch of timesteps: a `RemotePolicy` or a policy in this process."""

  def send(self, timestep: dm_env.TimeStep) -> None:
    """Sends the timesteps `[N]`."""

  def receive(self) -> np.ndarray | None:
    """Returns the actions `[N, ...]`; None if there are no more."""


class Episode(NamedTuple):
  """A finished episode, or a whole game where an episode is shorter (see `game_over`)."""

  episode_return: float  # Raw.
  length: int  # Steps.
  round: int = 0  # How many episodes its environment had finished before.


def play_episodes(
  environment: BatchedEnvironment,
  policy: Policy,
  episodes_each: int,
  is_out_of_time: Callable[[], bool] = lambda: False,
  max_steps: int = 0,
  goes_on: Callable[[], bool] = lambda: False,
) -> Iterator[Episode]:
  """Yields each episode as it ends, `episodes_each` from every environment.

  Taking the same number from each environment avoids a bias towards short episodes. An environment whose
  episode was cut cannot begin another one, so no round begins after a cut.

  Args:
    environment: is reset first.
    policy: acts in it.
    episodes_each: number of episodes.
    is_out_of_time: returns whether to end with the current round. Short episodes of the next rounds may
      have been yielded by then; see `complete_rounds`.
    max_steps: number of steps after which an episode is cut, so that an endless one does not block the
      program; 0 for no limit.
    goes_on: returns whether to step on after the last episode that is yielded, as while a video is not
      complete.

  Raises:
    lifecycle.Stopped: if the policy returns no actions.
  """
  activity.mark(activity.PLAYING)
  timestep = environment.reset()
  returns = np.zeros(environment.num_envs)
  lengths = np.zeros(environment.num_envs, int)
  finished = np.zeros(environment.num_envs, int)
  was_cut = np.zeros(environment.num_envs, bool)
  limit = max_steps or math.inf
  rounds, ended_all = 0, False
  while not ended_all or goes_on():
    activity.mark(activity.WAITING_FOR_ACTIONS)
    policy.send(timestep)
    action = policy.receive()
    if action is None:
      raise lifecycle.Stopped
    activity.mark(activity.PLAYING)
    timestep = environment.step(action)
    if ended_all:
      continue
    returns += timestep.reward
    lengths += timestep.step_type != dm_env.StepType.FIRST
    over = environment.game_over
    if over is None:
      over = timestep.step_type == dm_env.StepType.LAST
    cut = (lengths >= limit) & ~over & ~was_cut
    if cut.any() and not was_cut.any():
      logging.warning(
        'an episode has not ended after --eval_episode_steps=%d: its return so far counts, and the '
        'evaluation ends with this round',
        max_steps,
      )
    ended = (over & ~was_cut) | cut
    was_cut |= cut
    taken = ended & (finished < episodes_each)
    yield from map(
      Episode, returns[taken].tolist(), lengths[taken].tolist(), finished[taken].tolist()
    )
    finished += ended
    returns[over], lengths[over] = 0.0, 0
    if finished.min() > rounds:
      rounds = int(finished.min())
      ended_all = rounds >= episodes_each or is_out_of_time() or bool(was_cut.any())


def complete_rounds(played: Sequence[Episode], num_envs: int) -> list[Episode]:
  """Returns the episodes of the rounds in which each of `num_envs` environments finished one."""
  sizes = collections.Counter(episode.round for episode in played)
  return [episode for episode in played if sizes[episode.round] == num_envs]


def play_returns(
  inference: ActingServer,
  name: str,
  environment: BatchedEnvironment,
  episodes_each: int,
  should_stop: Callable[[], bool],
  is_out_of_time: Callable[[], bool],
  max_steps: int,
) -> list[float]:
  """Plays with `play_episodes` and returns the raw returns of complete rounds.

  The evaluator's group has one incarnation meanwhile.

  Args:
    inference: the inference server.
    name: of the evaluator, as the server knows it.
    environment: is reset first.
    episodes_each: see `play_episodes`.
    should_stop: polled while waiting for actions.
    is_out_of_time: see `play_episodes`.
    max_steps: see `play_episodes`.

  Raises:
    lifecycle.Stopped: once `should_stop` returns True.
  """
  policy = inference.policy(name, lifecycle.new_incarnation(), 0, should_stop)
  with contextlib.closing(policy):
    played = list(play_episodes(environment, policy, episodes_each, is_out_of_time, max_steps))
  return [e.episode_return for e in complete_rounds(played, environment.num_envs)]


def record_video(
  inference: ActingServer,
  name: str,
  environment: BatchedEnvironment,
  num_envs: int,
  max_frames: int,
  should_stop: Callable[[], bool],
  is_out_of_time: Callable[[], bool],
) -> bytes:
  """Returns an episode as the content of a GIF file.

  Args:
    inference: the inference server, which expects `num_envs` environments of the evaluator. Each
      request repeats this one `num_envs` times.
    name: of the evaluator, as the server knows it.
    environment: a single one; is reset first.
    num_envs: as declared to the server.
    max_frames: frames after which the video ends.
    should_stop: polled while waiting for actions.
    is_out_of_time: returns whether the video is to end.

  Raises:
    lifecycle.Stopped: once `should_stop` returns True.
  """
  from environments.video import VideoRecorder  # With Pillow, which other evaluators do not need.

  recorder = VideoRecorder(environment, 1, max_frames)
  policy = inference.policy(name, lifecycle.new_incarnation(), 0, should_stop)
  with contextlib.closing(policy):
    activity.mark(activity.RECORDING)
    timestep = recorder.reset()
    while not recorder.complete:
      activity.mark(activity.WAITING_FOR_ACTIONS)
      arrays = [np.repeat(array, num_envs, axis=0) for array in nests.arrays_of(timestep)]
      policy.send(dm_env.TimeStep(*nests.fields_of(timestep.observation, arrays)))
      action = policy.receive()
      if action is None:
        raise lifecycle.Stopped
      activity.mark(activity.RECORDING)
      timestep = recorder.step(action[:1])
      if is_out_of_time():
        break
  gif = io.BytesIO()
  recorder.save(gif)
  return gif.getvalue()
