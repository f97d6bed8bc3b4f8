"""What plays the episodes of an evaluator. Beside this module is one player for each way to act."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nodes.evaluation.video_schedule import VideoRecording

# Raw returns of episodes, and additional measurements to report.
Evaluated = tuple[Sequence[float], Mapping[str, float]]


class Player(Protocol):
  """Plays whole episodes without exploration.

  Its methods take `should_stop`, which they call often, and raise lifecycle.Stopped once that returns
  True.
  """

  @property
  def record(self) -> VideoRecording | None:
    """Records a video of the policy; None where the environment cannot be recorded."""

  def prepare(self, should_stop: Callable[[], bool]) -> None:
    """Does what counts neither as an evaluation nor against its share of the time, such as to compile.

    Called once, before the first evaluation.
    """

  def play(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
    """Plays `episodes_each` episodes in each environment, or fewer.

    Args:
      should_stop: see above.
      is_out_of_time: returns whether to end after the current round of episodes.
    """

  def close(self) -> None:
    """Closes the environments."""
