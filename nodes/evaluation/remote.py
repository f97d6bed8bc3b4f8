"""Plays evaluations in this process with the actions of an inference server. Imports no JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from agents.seeding import Seed
from environments.base import BatchedEnvironment
from nodes.evaluation.episodes import play_returns, record_video
from nodes.evaluation.player import Evaluated
from nodes.inference.client import ActingServer
from nodes.runtime import lifecycle
from nodes.runtime.options import EvaluationOptions


class RemotePlayer:
  """A `Player` that shares the actors' inference server.

  Its slots use `evaluation_exploration` and its rows are not stored. During training the parameters may
  change within an episode; the final evaluation uses a single policy_version.
  """

  def __init__(
    self,
    make_environment: Callable[[int, int], BatchedEnvironment],
    inference: ActingServer,
    name: str,
    options: EvaluationOptions,
    seed: Seed,
  ):
    """Makes the environments.

    Args:
      make_environment: takes (number of environments, seed).
      inference: the inference server, which expects `eval_envs` environments of the evaluator `name`.
      name: of the evaluator.
      options: of evaluation.
      seed: of the environments.
    """
    self._inference, self._name, self._options = inference, name, options
    seed = seed.child('restart', lifecycle.restart_count())
    self._opened = contextlib.ExitStack()
    self._environment = make_environment(options.eval_envs, seed.child('environments').number())
    self._opened.callback(self._environment.close)
    if options.video_period:
      self._recorded = make_environment(1, seed.child('video').number())
      self._opened.callback(self._recorded.close)

  def prepare(self, should_stop: Callable[[], bool]) -> None:
    """Does nothing: the server acts already."""

  def play(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
    """Plays an evaluation; see `Player`."""
    returns = play_returns(
      self._inference,
      self._name,
      self._environment,
      self._options.episodes_each,
      should_stop,
      is_out_of_time,
      self._options.eval_episode_steps,
    )
    return returns, {}

  def record(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> bytes:
    """Records a video; see `Player`."""
    return record_video(
      self._inference,
      self._name,
      self._recorded,
      self._options.eval_envs,
      self._options.video_frames,
      should_stop,
      is_out_of_time,
    )

  def close(self) -> None:
    """Closes the environments."""
    self._opened.close()
