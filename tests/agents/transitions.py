"""Recorded transitions of CartPole's shape, as unrolls of two rows, by hand."""

from __future__ import annotations

import dm_env.specs
import numpy as np

from agents.types import FIRST, LAST, MID, Timestep, Unroll

OBSERVATION_SPEC = dm_env.specs.Array((4,), np.float32)
ACTION_SPEC = dm_env.specs.DiscreteArray(2)
# Three transitions: the first of an episode, one within, and the last.
STEP_TYPES = ((FIRST, MID), (MID, MID), (MID, LAST))


def transitions(action, observation=None, step_type=STEP_TYPES):
  """Returns a batch of transitions.

  Args:
    action: `[B, 2, ...]`.
    observation: `[B, 2, 4]`; zeros if None.
    step_type: `[B, 2]`.
  """
  action, step_type = np.asarray(action), np.asarray(step_type, np.uint8)
  if np.issubdtype(action.dtype, np.integer):
    action = action.astype(np.int32)
  size = len(action)
  if observation is None:
    observation = np.zeros((size, 2, 4), np.float32)
  return Unroll(
    timestep=Timestep(
      step_type=step_type,
      reward=np.zeros((size, 2), np.float32),
      discount=np.ones((size, 2), np.float32),
      observation=np.asarray(observation, np.float32),
    ),
    action=action,
    extras={},
    policy_version=np.zeros((size, 2), np.int32),
    core_state={},
    environment_id=np.zeros(size, np.int32),
  )


def by_sign(rng, size):
  """Returns transitions of an expert that pushes to where the first feature points."""
  observation = rng.normal(size=(size, 2, 4))
  action = (observation[..., 0] > 0).astype(np.int32)
  return transitions(action, observation, np.full((size, 2), MID))
