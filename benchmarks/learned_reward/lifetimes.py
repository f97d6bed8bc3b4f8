"""Plays lifetimes whose inner episodes are one choice each, and notes the learned rewards."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from agents import lifetimes
from agents.anakin import streams
from agents.anakin.environment import JaxEnvironment
from agents.intrinsic_rewards.agent import IntrinsicRewards
from agents.types import LAST, Array, Nest


class Choices(NamedTuple):
  """The choices of B lifetimes of T inner episodes."""

  objects: np.ndarray  # int32 `[T, B]`.
  rewards: np.ndarray  # float32 `[T, B]`, that the inner policy got for them.


def play(
  agent: IntrinsicRewards,
  environment: JaxEnvironment,
  params: Nest,
  num_lifetimes: int,
  key: Array,
) -> Choices:
  """Plays lifetimes to their end.

  Args:
    agent: the agent.
    environment: all its lifetimes have the same number of steps.
    params: the agent's parameters.
    num_lifetimes: B.
    key: a typed PRNG key.

  Raises:
    ValueError: an inner episode has several steps; one sentence.
  """
  common = agent, environment, params, jnp.int32(0)
  exploration = jnp.asarray(agent.exploration(num_lifetimes))
  playing = jax.jit(lambda key: streams.begin(*common, exploration, key))(key)
  advance = jax.jit(lambda playing: streams.advance(*common, playing))
  objects: list[Array] = []
  rewards: list[Array] = []
  while not objects or not np.any(playing.row.timestep.step_type == LAST):
    objects.append(playing.row.action)
    playing = advance(playing)
    if not np.all(lifetimes.ended(playing.row.timestep.observation)):
      raise ValueError('an inner episode has several steps; choose objects with size=1.')
    rewards.append(playing.row.extras['intrinsic_reward'])
  return Choices(np.stack(objects), np.stack(rewards))
