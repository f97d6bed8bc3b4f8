"""Records the first environment of a batch while a policy acts."""

from __future__ import annotations

from typing import IO, NamedTuple

import dm_env
import numpy as np
from acme import specs
from PIL import Image

from environments import frames
from environments.base import BatchedEnvironment
from environments.nests import Nest

FIRST, LAST = dm_env.StepType.FIRST, dm_env.StepType.LAST


class Row(NamedTuple):
  """A timestep of the first environment, and the action that followed it."""

  picture: Image.Image | None  # Rendered by the environment; None if it renders nothing.
  observation: np.ndarray  # The part that `frames.drawn_part` chooses.
  episode: int  # Counts from 1. Counts games if an episode is shorter than a game.
  step: int  # Step in the episode; 0 for its FIRST row.
  action: np.ndarray | None  # None in a LAST row.
  reward: float  # Raw reward that arrived with the observation.
  episode_return: float  # Raw return so far, including this reward.
  last: bool


class VideoRecorder(BatchedEnvironment):
  """Wraps a batch of environments, and keeps the rows of the first environment."""

  def __init__(self, environment: BatchedEnvironment, num_episodes: int, max_frames: int):
    """Wraps a batch.

    Args:
      environment: the batch.
      num_episodes: number of episodes to keep.
      max_frames: largest number of rows to keep.
    """
    self.num_envs = environment.num_envs
    self.action_repeat = environment.action_repeat
    self.protocol = environment.protocol
    self.rows: list[Row] = []
    self._environment = environment
    self._num_episodes = num_episodes
    self._max_frames = max_frames
    self._episode = 0
    self._step = 0
    self._return = 0.0
    self._row: Row | None = None
    self._over = True
    self._acts = True

  @property
  def cut(self) -> bool:
    """Whether the recording stops inside an episode, at `max_frames`."""
    return len(self.rows) >= self._max_frames and not self.rows[-1].last

  @property
  def complete(self) -> bool:
    """Whether it has all rows that it keeps."""
    whole = self._over and self._step > 0 and self._episode >= self._num_episodes
    return whole or self._episode > self._num_episodes or len(self.rows) >= self._max_frames

  def reset(self) -> dm_env.TimeStep:
    """See the base class."""
    return self._see(self._environment.reset())

  def step(self, action: np.ndarray) -> dm_env.TimeStep:
    """See the base class."""
    if self._row is not None and not self._row.last:
      self.rows.append(self._row._replace(action=np.array(action[0]) if self._acts else None))
    self._row = None
    return self._see(self._environment.step(action))

  def observation_spec(self) -> Nest:
    """See the base class."""
    return self._environment.observation_spec()

  def action_spec(self) -> specs.Array:
    """See the base class."""
    return self._environment.action_spec()

  def close(self) -> None:
    """See the base class."""
    self._environment.close()

  def save(self, path: str | IO[bytes]) -> None:
    """Writes a GIF with one frame per kept row, of which there is at least one.

    Args:
      path: of the file, or an open file.

    Raises:
      OSError: if the file cannot be written.
    """
    low, high = self._range()
    pictures = (
      frames.caption(
        row.picture or frames.draw(row.observation, low, high),
        (
          f'episode {row.episode}   step {row.step}   action {_text(row.action)}',
          f'reward {row.reward:.4g}   return {row.episode_return:.4g}',
        ),
      )
      for row in self.rows
    )
    frames.save(path, pictures, [row.last for row in self.rows])

  def _see(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
    """Records the first environment's timestep."""
    first, ended = timestep.step_type[0] == FIRST, timestep.step_type[0] == LAST
    self.game_over = self._environment.game_over
    over = bool(ended if self.game_over is None else self.game_over[0])
    begins, last = first and (over or self._over), over and not first
    self._over, self._acts = over, not ended
    reward = float(timestep.reward[0])
    self._episode += begins
    self._step = 0 if begins else self._step + 1
    self._return = 0.0 if begins else self._return + reward
    if self._episode <= self._num_episodes and len(self.rows) < self._max_frames:
      observation = frames.drawn_part(timestep.observation)[0]
      drawn = None if frames.is_picture(observation) else self._environment.render()
      self._row = Row(
        None if drawn is None else frames.shrink(drawn),
        observation.copy(),
        self._episode,
        self._step,
        None,
        reward,
        self._return,
        bool(last),
      )
      if last:
        self.rows.append(self._row)
    return timestep

  def _range(self) -> tuple[float, float]:
    """Returns the values drawn darkest and brightest in all frames."""
    if self.rows[0].observation.dtype == np.uint8:
      return 0.0, 255.0
    seen = np.stack([row.observation for row in self.rows])
    seen = seen[np.isfinite(seen)]
    return float(seen.min(initial=0)), float(seen.max(initial=0))


def _text(action: np.ndarray | None) -> str:
  if action is None:
    return '-'
  return np.array2string(action, precision=2, separator=' ')
