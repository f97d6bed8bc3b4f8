"""When an evaluator records a video, and for how long."""

from __future__ import annotations

import time
from collections.abc import Callable

from absl import logging

from nodes.evaluation.budget import EvaluationBudget
from nodes.runtime import activity, lifecycle

# Plays a part of an episode and returns it as the content of a GIF file. Takes `should_stop`, upon which
# it raises lifecycle.Stopped, and `is_out_of_time`, which returns whether to end the video.
VideoRecording = Callable[[Callable[[], bool], Callable[[], bool]], bytes]


class VideoSchedule:
  """Records a video every `period` seconds, and for at most a share of the wall time.

  A video has the time that `EvaluationBudget` gives an evaluation, but all of it counts.

  Attributes:
    seconds: duration of the last recording.
  """

  def __init__(
    self,
    period: float,
    share: float,
    final_seconds: float,
    clock: Callable[[], float] = time.monotonic,
  ):
    """Initialises a schedule whose first video is due now.

    Args:
      period: seconds from the beginning of a video to that of the next.
      share: see `EvaluationBudget`.
      final_seconds: likewise, of the final video.
      clock: returns seconds.
    """
    self._period = period
    self._budget = EvaluationBudget(share, final_seconds, clock)
    self._clock = clock
    self._next = clock()
    self._broken = False
    self.seconds = 0.0

  def due(self) -> bool:
    """Returns whether to record now."""
    return self._clock() >= self._next and self._budget.allows_another()

  def make(
    self, recording: VideoRecording, should_stop: Callable[[], bool], final: bool
  ) -> bytes | None:
    """Returns a video; None if this or an earlier one has failed, which costs videos and no run.

    Args:
      recording: records it.
      should_stop: polled while it is made.
      final: whether it is that of the final parameters.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
    """
    if self._broken:
      return None
    began = self._clock()
    self._next = began + self._period
    try:
      return recording(should_stop, self._budget.begin(final))
    except lifecycle.Stopped:
      raise
    except Exception:
      logging.exception('recording a video failed, so there are no more videos')
      self._broken = True
      return None
    finally:
      self.seconds = self._clock() - began
      self._budget.took(self.seconds, free=0.0)
      activity.mark(activity.IDLE)
