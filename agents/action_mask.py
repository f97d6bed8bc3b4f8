"""Action masks: which discrete actions are legal in a row, as its observation shows.

If an observation is a dictionary, its entry `action_mask` is the mask of its row: `[A]` for A actions,
of any dtype, and 0 where an action is illegal. For K discrete actions at once it has the entries of the
first, then those of the second, and so on.

- Networks do not see the mask. If one other entry is left, they receive it alone, as if the observation
  were that array.
- The logits or Q-values of illegal actions are `ILLEGAL`: in acting, in losses and entropies, and in
  evaluation. So an illegal action has probability 0 and no gradient, and is never chosen. Where all
  actions are legal, nothing changes.
- A row without a legal action, as some environments show at the end of an episode, counts as one where
  all are legal.

Environments whose actions are `agents.turns.TurnActions` need no such entry: the spec says which actions
are legal by the observation.
"""

from __future__ import annotations

import dm_env.specs
import jax.numpy as jnp
import numpy as np

from agents.spaces import MASK, check_mask, has_mask, num_values
from agents.turns import TurnActions
from agents.types import Array, Nest

# Finite, so that 0 times it is 0; far below any logit or Q-value.
ILLEGAL = np.float32(-1e9)


class LegalActions:
  """Reads the legal actions of rows from their observations.

  Attributes:
    some_illegal: whether any action may be illegal.
  """

  def __init__(self, observation_spec: Nest, action_spec: dm_env.specs.Array):
    """Initialises for the specs of one observation and one action.

    Raises:
      ValueError: the mask does not fit the actions, or there is nothing besides it; one sentence.
    """
    check_mask(observation_spec, action_spec)
    self._turns = action_spec.legal if isinstance(action_spec, TurnActions) else None
    self._masked = has_mask(observation_spec)
    self.some_illegal = self._masked or self._turns is not None
    if not self._masked:
      return
    self._ends = np.cumsum(num_values(action_spec) or ())[:-1]

  def of(self, observation: Nest) -> Array | None:
    """Returns which actions are legal, bool `[..., A]`; None if all are.

    Args:
      observation: `[B, *S]` per leaf.
    """
    if self._masked:
      parts = jnp.split(observation[MASK] != 0, self._ends, axis=-1)
    elif self._turns is not None:
      parts = [self._turns(observation)]
    else:
      return None
    return jnp.concatenate([part | ~part.any(-1, keepdims=True) for part in parts], axis=-1)


def masked(values: Array, legal: Array) -> Array:
  """Returns logits or Q-values `[..., A]` with those of illegal actions replaced by `ILLEGAL`.

  Args:
    values: float32.
    legal: bool, of the same shape.
  """
  return jnp.where(legal, values, ILLEGAL)
