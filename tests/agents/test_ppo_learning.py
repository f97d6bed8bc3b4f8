"""PPO learns Catch from many passes over each batch, and only because it clips the ratio."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest

from agents.anakin.environments.catch import Catch
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.types import LAST
from tests.agents import lagged_training

pytestmark = pytest.mark.trains

CONFIG = PPOConfig(unroll_length=20, mlp_sizes=(64,), num_epochs=16, learning_rate=5e-3)
UNCLIPPED = dataclasses.replace(CONFIG, clip_ratio=1e9)
CATCH = Catch()
FRAMES = 60_000


@functools.partial(jax.jit, static_argnums=1)
@functools.partial(jax.vmap, in_axes=(0, None))
def train(key, config):
  agent = PPO(config, CATCH.observation_spec, CATCH.action_spec)
  return lagged_training.train(agent, CATCH, key, num_envs=16, frames=FRAMES)


def late_returns(config):
  """Returns the mean return of each of four seeds in the last quarter of its updates."""
  rewards, step_types = jax.device_get(train(jax.random.split(jax.random.key(0), 4), config))
  later = slice(rewards.shape[1] * 3 // 4, None)
  return [np.mean(r[later][s[later] == LAST]) for r, s in zip(rewards, step_types, strict=True)]


def test_many_epochs_need_the_clip():
  # A random policy has -0.6. Calibrated: 0.92, 0.89, 0.92 and 0.89; -0.23, 0.66, 0.40 and -0.16.
  clipped, unclipped = late_returns(CONFIG), late_returns(UNCLIPPED)
  assert min(clipped) > 0.8, clipped
  assert np.median(unclipped) < 0.5, unclipped
