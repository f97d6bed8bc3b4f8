"""Observations with an action mask."""

import jax.numpy as jnp
import numpy as np
from dm_env import specs

from tests.agents.recording import NUM_ACTIONS, OBSERVATION_SPEC

SPEC = {'observation': OBSERVATION_SPEC, 'action_mask': specs.Array((NUM_ACTIONS,), np.int8)}


def some_illegal(observation):
  """Adds a mask that follows from an observation `[..., 3, 2]`; in some rows no action is legal."""
  mask = observation.reshape(*observation.shape[:-2], 6)[..., :NUM_ACTIONS] > 0
  return {'observation': observation, 'action_mask': mask.astype(jnp.int8)}


def all_legal(observation):
  """Adds a mask of ones."""
  mask = jnp.ones((*observation.shape[:-2], NUM_ACTIONS), jnp.int8)
  return {'observation': observation, 'action_mask': mask}
