"""Continuous control on MuJoCo: Gymnasium's tasks, and the Control Suite's."""

from __future__ import annotations

from benchmarks.results.declared import Group, Task
from benchmarks.results.rows import quoted, systems


def _control(name: str, threshold: float, figure: str) -> Task:
  """Returns a task of the Control Suite."""
  env, budget = f'dm_control:{name}', 1_000_000
  return Task(
    name=f'control/{name.replace("/", "-")}',
    title=name,
    about=f'`{env}`, observed by its state.',
    rows=(systems.ppo('sebulba', env, budget), systems.ours('impala', env, budget)),
    thresholds=(threshold,),
    published=(
      quoted.cleanrl(figure, f'{name}, 8,000,000 steps, 10 seeds', quoted.CLEANRL_CONTROL),
    ),
    scale=(0.0, 1000.0),
    episodes=30,
  )


GROUPS = (
  Group(
    name='control',
    title='Control Suite',
    about=(
      'Tasks of the DeepMind Control Suite (Tassa et al. 2018), whose returns lie between 0 and 1,000. '
      'A scaled return is a thousandth of the return.'
    ),
  ),
)

TASKS = (
  Task(
    name='halfcheetah',
    title='HalfCheetah',
    about="Gymnasium's HalfCheetah-v5, on MuJoCo.",
    rows=(
      systems.ppo('sebulba', 'gymnasium:HalfCheetah-v5', 1_000_000),
      systems.ours('impala', 'gymnasium:HalfCheetah-v5', 1_000_000),
    ),
    thresholds=(1000.0, 4800.0),
    published=(
      quoted.cleanrl(
        '1442.64 ± 46.03', f'HalfCheetah-v4, 1,000,000 steps, {quoted.SEEDS}', quoted.CLEANRL_MUJOCO
      ),
      quoted.zoo('5819.099 ± 663.530', 'HalfCheetah-v3, 1,000,000 steps'),
    ),
    episodes=30,
  ),
  Task(
    name='hopper',
    title='Hopper',
    about="Gymnasium's Hopper-v5, on MuJoCo.",
    rows=(
      systems.ppo('sebulba', 'gymnasium:Hopper-v5', 1_000_000),
      systems.ours('impala', 'gymnasium:Hopper-v5', 1_000_000),
    ),
    thresholds=(1000.0, 2000.0),
    published=(
      quoted.cleanrl(
        '2382.86 ± 271.74', f'Hopper-v4, 1,000,000 steps, {quoted.SEEDS}', quoted.CLEANRL_MUJOCO
      ),
      quoted.zoo('2410.435 ± 10.026', 'Hopper-v3, 1,000,000 steps'),
    ),
    episodes=30,
  ),
  _control('cartpole/swingup', 600.0, '590.21 ± 16.72'),
  _control('walker/walk', 400.0, '305.74 ± 92.15'),
)
