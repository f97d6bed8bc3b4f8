"""What programs whose actors act themselves can be told."""

from __future__ import annotations

import dataclasses

from agents.options import option
from programs.options.actors import ActorsConfig


@dataclasses.dataclass(frozen=True)
class ActingConfig(ActorsConfig):
  """Options of programs whose actors fetch parameters, which do not depend on the agent."""

  update_period: float = option(
    0.05, 'seconds from an answer of the learner to an actor until it asks again for parameters'
  )

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    super().validate()
    if self.update_period <= 0:
      raise ValueError(f'--update_period={self.update_period} must be above 0.')
