"""Suites in JAX whose packages are optional: `make add` has to install them first."""

from __future__ import annotations

from benchmarks.results.declared import Group, Published, Task
from benchmarks.results.rows import systems

GROUPS = (
  Group(
    name='jax-suites',
    title='Suites in JAX',
    about=(
      'One task of each suite whose package is [optional](../environments.md#jax-suites), under Anakin. '
      '`requirements-jax-suites.txt` has the versions.'
    ),
  ),
)

TASKS = (
  Task(
    name='jax-suites/navix',
    title='Navix',
    about='`Navix-Empty-8x8-v0`: an empty room, with reward 1 in the far corner and 256 steps.',
    rows=(systems.ppo('anakin', 'navix:Navix-Empty-8x8-v0', 1_000_000),),
    thresholds=(0.95,),
  ),
  Task(
    name='jax-suites/jumanji',
    title='Jumanji',
    about='`Snake-v1` on a board of 6 x 6 cells, where 35 fruits fill the board.',
    rows=(
      systems.ppo(
        'anakin',
        'jumanji:Snake-v1',
        1_000_000,
        '--env_options=num_rows=6,num_cols=6,time_limit=1000',
      ),
    ),
    thresholds=(10.0,),
  ),
  Task(
    name='jax-suites/brax',
    title='Brax',
    about='`inverted_pendulum`, with reward 1 for each of at most 1,000 steps.',
    rows=(systems.ppo('anakin', 'brax:inverted_pendulum', 500_000),),
    thresholds=(950.0,),
  ),
  Task(
    name='jax-suites/playground',
    title='MuJoCo Playground',
    about='`CartpoleBalance`, whose best return is 1,000.',
    rows=(systems.ppo('anakin', 'playground:CartpoleBalance', 500_000),),
    thresholds=(900.0,),
    missed='One seed still learns when its steps are over.',
  ),
  Task(
    name='jax-suites/craftax',
    title='Craftax',
    about='`Craftax-Symbolic-v1`, whose best return is 226. The row is for a GPU.',
    rows=(systems.ppo('anakin', 'craftax:Craftax-Symbolic-v1', 100_000_000),),
    published=(
      Published(
        system='Craftax_Baselines, PPO',
        figure='11.9% of 226',
        protocol='Craftax-Symbolic-v1, 1,000,000,000 steps',
        source='Craftax at c3c2e0d, README.md, Scoreboard',
      ),
    ),
    missed='It is not run: there was no GPU.',
  ),
)
