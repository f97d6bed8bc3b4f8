"""Games of two players who move in turn, one's gain being the other's loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dm_env.specs
import numpy as np

from agents.types import Array


class TurnActions(dm_env.specs.DiscreteArray):
  """The actions of such a game, of which some may be illegal in a position.

  In self-play a row holds the position from the side of the player to move. Its reward belongs to the
  player that moved last. Its discount is -1, or 0 at the end of the game, since one player's gain is the
  other's loss. Targets and searches with these discounts need no other rule (negamax).

  Rows need no mask, as in `agents.action_mask`: an observation shows which actions are legal.

  Attributes:
    legal: maps observations `[B, ...]` to the legal actions, bool `[B, num_values]`.
  """

  def __init__(self, num_values: int, legal: Callable[[Array], Array]):
    """Initialises the spec of int32 actions 0 .. num_values - 1."""
    super().__init__(num_values, np.int32, 'action')
    self.legal = legal

  def __reduce__(self) -> tuple[Any, ...]:
    """Copies and pickles keep the class, and so the rules of the game."""
    return TurnActions, (int(self.num_values), self.legal)
