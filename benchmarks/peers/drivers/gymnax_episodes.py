"""Whole episodes of a gymnax environment, for the final evaluations of peers that play them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def play(
  env: Any, env_params: Any, act: Callable[[Any], Any], episodes: int, seed: int
) -> list[float]:
  """Plays one episode in each of `episodes` environments.

  Args:
    env: of gymnax, perhaps wrapped; its steps return five values.
    env_params: its parameters.
    act: returns the actions for a batch of observations.
    episodes: how many.
    seed: of the run that trained the policy.

  Returns:
    The raw return of each.
  """
  # Training splits the seed's own key.
  reset_key, key = jax.random.split(jax.random.fold_in(jax.random.PRNGKey(seed), 1 << 16))
  keys = jax.random.split(reset_key, episodes)
  observation, state = jax.vmap(env.reset, in_axes=(0, None))(keys, env_params)
  limit = int(env_params.max_steps_in_episode)

  def step(carry: Any, key: Any) -> tuple[Any, None]:
    observation, state, alive, returns = carry
    keys = jax.random.split(key, episodes)
    observation, state, reward, done, _ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
      keys, state, act(observation), env_params
    )
    return (observation, state, alive & ~done, returns + reward * alive), None

  start = (observation, state, jnp.ones(episodes, bool), jnp.zeros(episodes))
  keys = jax.random.split(key, limit + 1)
  (_, _, alive, returns), _ = jax.jit(lambda: jax.lax.scan(step, start, keys))()
  assert not alive.any(), 'an episode has not ended within its time limit'
  return [float(value) for value in returns]


def protocol(env: str, returns: list[float]) -> str:
  """Returns what these returns are, in words."""
  return f'{len(returns)} whole episodes of `{env}`, greedy, raw rewards, action repeat 1'
