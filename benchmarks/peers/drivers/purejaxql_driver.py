"""Trains with purejaxql's PQN on a MinAtar game of gymnax; prints its progress and a final evaluation.

python purejaxql_driver.py SETTINGS

The settings are JSON: `env` (gymnax:<id>), `seed`, `num_steps`, `episodes` of the final evaluation,
`script` (a checkout of purejaxql), `config` (purejaxql's settings, by its own names), and `started`, in
Unix time.
"""

from __future__ import annotations

import json
import math
import os
import sys
import types
from typing import Any

import gymnax_episodes
import jax
import jax.numpy as jnp
from progress import Progress


def import_pqn(checkout: str, progress: Progress) -> Any:
  """Imports `pqn_minatar` of a checkout, so that it reports its updates to `progress`.

  Its command line and its tracker are not installed. Modules with what it takes from them stand in.
  """

  def log(metrics: dict[str, Any], step: Any) -> None:
    del step
    steps = int(metrics['env_step'])
    # A mean over environments of the return of each one's latest episode, 0 before the first.
    mean = float(metrics['returned_episode_returns'])
    progress.tell(steps, steps, mean if metrics['returned_episode_lengths'] > 0 else math.nan)

  for name in ('hydra', 'omegaconf', 'wandb'):
    sys.modules[name] = types.ModuleType(name)
  sys.modules['hydra'].main = lambda **_: lambda function: function  # type: ignore[attr-defined]
  sys.modules['omegaconf'].OmegaConf = None  # type: ignore[attr-defined]
  sys.modules['wandb'].log = log  # type: ignore[attr-defined]
  sys.path.insert(0, os.path.join(checkout, 'purejaxql'))
  import pqn_minatar

  return pqn_minatar


def evaluate(pqn: Any, name: str, trained: Any, episodes: int, seed: int) -> list[float]:
  """Plays whole episodes with the actions of the highest value; returns the raw return of each."""
  env, env_params = pqn.gymnax.make(name)
  network = pqn.QNetwork(env.action_space(env_params).n)
  variables = {'params': trained.params, 'batch_stats': trained.batch_stats}

  def act(observation: Any) -> Any:
    return jnp.argmax(network.apply(variables, observation, train=False), axis=-1)

  return gymnax_episodes.play(env, env_params, act, episodes, seed)


def main() -> None:
  """Trains and evaluates."""
  given = json.loads(sys.argv[1])
  progress = Progress(given['started'])
  pqn = import_pqn(given['script'], progress)
  name = given['env'].partition(':')[2]
  config = {
    **given['config'],
    'ENV_NAME': name,
    'TOTAL_TIMESTEPS': given['num_steps'],
    'TOTAL_TIMESTEPS_DECAY': given['num_steps'],
    'WANDB_MODE': 'online',  # So that it calls back.
  }
  # The script trains several seeds at once, and names a key of each.
  train = jax.jit(lambda keys: pqn.make_train(config)(keys[0])['runner_state'][0])
  trained = jax.block_until_ready(train(jax.random.split(jax.random.PRNGKey(given['seed']), 1)))
  jax.effects_barrier()
  returns = evaluate(pqn, name, trained, given['episodes'], given['seed'])
  progress.conclude(returns, gymnax_episodes.protocol(given['env'], returns))


if __name__ == '__main__':
  main()
