"""The rewards that a loss sees."""

from __future__ import annotations

import jax.numpy as jnp

from agents.rewards_config import RewardsConfig
from agents.types import Array


def scaled_rewards(config: RewardsConfig, reward: Array) -> Array:
  """Returns raw rewards, of any shape, scaled by `reward_scale` and then clipped, if at all."""
  scaled = config.reward_scale * reward
  if config.max_abs_reward > 0.0:
    scaled = jnp.clip(scaled, -config.max_abs_reward, config.max_abs_reward)
  return scaled
