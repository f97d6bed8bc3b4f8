"""The share of a batch that is online data, which rises with training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class OnlineShare:
  """A share of online data that rises linearly from 0.

  Attributes:
    final: the share at the end of the ramp, from 0 to 1.
    ramp_steps: learner steps of the ramp; 0 to begin with `final`.
  """

  final: float
  ramp_steps: int

  def at(self, learner_steps: int) -> float:
    """Returns the share after a number of learner steps."""
    risen = learner_steps / self.ramp_steps if self.ramp_steps else 1.0
    return self.final * min(1.0, risen)


class Quotas:
  """Whole numbers of online and offline unrolls in each batch, whose sums follow the share.

  A batch gets the whole part of what is owed to online data; the rest counts in the next batch. So the
  sum over any batches differs from the share by less than one unroll.

  Attributes:
    drawn: online and offline unrolls of all batches so far.
  """

  def __init__(self, share: OnlineShare, batch_size: int, learner_steps: Callable[[], int]):
    """Initialises the quotas.

    Args:
      share: of online data.
      batch_size: unrolls in a batch.
      learner_steps: returns the present learner steps.
    """
    self._share, self._batch_size, self._learner_steps = share, batch_size, learner_steps
    self._owed = 0.0
    self.drawn = (0, 0)

  def __call__(self) -> tuple[int, int]:
    """Returns the numbers of online and offline unrolls of the next batch."""
    self._owed += self._share.at(self._learner_steps()) * self._batch_size
    online = min(int(self._owed), self._batch_size)
    self._owed -= online
    offline = self._batch_size - online
    self.drawn = self.drawn[0] + online, self.drawn[1] + offline
    return online, offline
