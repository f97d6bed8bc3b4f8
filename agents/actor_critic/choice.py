"""The choice of a policy's distribution by the action spec."""

from __future__ import annotations

import dm_env.specs

from agents.actor_critic.distributions import (
  Categorical,
  ClippedGaussian,
  Distribution,
  SquashedGaussian,
)
from agents.actor_critic.multi_categorical import MultiCategorical
from agents.spaces import kind, num_values


def make_distribution(action_spec: dm_env.specs.Array, policy_std: str = 'state') -> Distribution:
  """Returns the distribution for an action spec.

  Args:
    action_spec: of one action.
    policy_std: what continuous actions have: 'state' for `SquashedGaussian`, 'free' for
      `ClippedGaussian`.

  Raises:
    ValueError: no agent takes such actions; one sentence.
  """
  if kind(action_spec) == 'discrete':
    return Categorical(action_spec.num_values)
  if (sizes := num_values(action_spec)) is not None:
    return MultiCategorical(sizes)
  return (ClippedGaussian if policy_std == 'free' else SquashedGaussian)(action_spec)
