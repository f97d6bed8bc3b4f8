"""Trains with purejaxrl's PPO on a gymnax environment; prints its progress and a final evaluation.

python purejaxrl_driver.py SETTINGS

The settings are JSON: `env` (gymnax:<id>), `seed`, `num_steps`, `episodes` of the final evaluation,
`script` (a checkout of purejaxrl), `config` (purejaxrl's settings, by its own names), and `started`, in
Unix time.
"""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import gymnax_episodes
import jax
import jax.numpy as jnp
from progress import Progress
from recent import RecentReturns


def import_ppo(checkout: str) -> Any:
  """Imports `ppo` of a checkout.

  Its wrappers import Brax and Navix for environments other than gymnax's. Empty modules stand in for
  them.
  """
  for name in ('brax', 'brax.envs', 'brax.envs.wrappers', 'brax.envs.wrappers.training', 'navix'):
    sys.modules[name] = types.ModuleType(name)
  sys.modules['brax'].envs = sys.modules['brax.envs']  # type: ignore[attr-defined]
  for name in ('EpisodeWrapper', 'AutoResetWrapper'):
    setattr(sys.modules['brax.envs.wrappers.training'], name, None)
  sys.path.insert(0, os.path.join(checkout, 'purejaxrl'))
  import ppo

  return ppo


class Listener:
  """Gets the episodes of each update from within the compiled training, and reports them."""

  def __init__(self, progress: Progress, num_envs: int):
    self._progress = progress
    self._num_envs = num_envs
    self._returns = RecentReturns()

  def callback(self, original: Any) -> Any:
    """Returns a `jax.debug.callback` that sums an update's episodes up before they leave the device."""

    def callback(printer: Any, info: dict[str, Any]) -> None:
      del printer  # It prints a line for each episode.
      ended = info['returned_episode']
      returns = jnp.where(ended, info['returned_episode_returns'], 0.0)
      steps = info['timestep'].max() * self._num_envs
      original(self.hear, steps, ended.sum(), returns.sum(), ordered=True)

    return callback

  def hear(self, steps: Any, episodes: Any, total: Any) -> None:
    """Reports an update."""
    self._returns.add(int(episodes), float(total))
    self._progress.tell(int(steps), int(steps), self._returns.mean())


def evaluate(
  ppo: Any, config: dict[str, Any], params: Any, episodes: int, seed: int
) -> list[float]:
  """Plays whole episodes with the most probable actions; returns the raw return of each."""
  env, env_params = ppo.gymnax.make(config['ENV_NAME'])
  env = ppo.FlattenObservationWrapper(env)
  network = ppo.ActorCritic(env.action_space(env_params).n, activation=config['ACTIVATION'])

  def act(observation: Any) -> Any:
    policy, _ = network.apply(params, observation)
    return policy.mode()

  return gymnax_episodes.play(env, env_params, act, episodes, seed)


def main() -> None:
  """Trains and evaluates."""
  given = json.loads(sys.argv[1])
  ppo = import_ppo(given['script'])
  config = {
    **given['config'],
    'ENV_NAME': given['env'].partition(':')[2],
    'TOTAL_TIMESTEPS': given['num_steps'],
    'DEBUG': True,  # So that it calls back.
  }
  progress = Progress(given['started'])
  listener = Listener(progress, config['NUM_ENVS'])
  jax.debug.callback = listener.callback(jax.debug.callback)
  trained = jax.jit(lambda key: ppo.make_train(config)(key)['runner_state'][0].params)
  params = jax.block_until_ready(trained(jax.random.PRNGKey(given['seed'])))
  jax.effects_barrier()
  returns = evaluate(ppo, config, params, given['episodes'], given['seed'])
  progress.conclude(returns, gymnax_episodes.protocol(given['env'], returns))


if __name__ == '__main__':
  main()
