"""Continuous control on MuJoCo: Gymnasium's tasks, and the Control Suite's."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Task
from benchmarks.results.rows import quoted, systems

_BUDGET = 1_000_000
_REACHER = 'gymnasium:Reacher-v5'


def _gymnasium(
  name: str,
  thresholds: tuple[float, ...],
  cleanrl: str,
  zoo: str,
  missed: str = '',
  about: str = '',
  others: tuple[Launch, ...] = (),
) -> Task:
  """Returns a task of Gymnasium, with CleanRL's figure and that of Stable-Baselines3."""
  env, steps = f'gymnasium:{name}-v5', '1,000,000 steps'
  return Task(
    name=name.lower(),
    title=name,
    about=f"Gymnasium's {name}-v5, on MuJoCo.{about}",
    rows=(systems.ppo('sebulba', env, _BUDGET), systems.ours('impala', env, _BUDGET), *others),
    thresholds=thresholds,
    published=(
      quoted.cleanrl(cleanrl, f'{name}-v4, {steps}, {quoted.SEEDS}', quoted.CLEANRL_MUJOCO),
      quoted.zoo(zoo, f'{name}-v3, {steps}'),
    ),
    episodes=30,
    missed=missed,
  )


def _control(name: str, threshold: float, figure: str, missed: str) -> Task:
  """Returns a task of the Control Suite."""
  env = f'dm_control:{name}'
  return Task(
    name=f'control/{name.replace("/", "-")}',
    title=name,
    about=f'`{env}`, observed by its state.',
    rows=(systems.ppo('sebulba', env, _BUDGET), systems.ours('impala', env, _BUDGET)),
    thresholds=(threshold,),
    published=(
      quoted.cleanrl(figure, f'{name}, 8,000,000 steps, 10 seeds', quoted.CLEANRL_CONTROL),
    ),
    scale=(0.0, 1000.0),
    episodes=30,
    missed=missed,
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
  _gymnasium(
    'HalfCheetah',
    (1000.0, 4800.0),
    '1442.64 ± 46.03',
    '5819.099 ± 663.530',
    missed=(
      "`impala`, V-trace, stays a little below CleanRL's PPO: it does one gradient step where PPO does "
      "hundreds. `sebulba-ppo` is above CleanRL's figure, and below Stable-Baselines3's. The steps of "
      '`evolution` are ten generations, too few for the first threshold with most seeds.'
    ),
    about=' `evolution` has 300,000 steps, less than a third of the others.',
    others=(
      # With the default share, so few steps have time for two evaluations.
      systems.ours('evolution', 'gymnasium:HalfCheetah-v5', 300_000, '--eval_share=0.2'),
    ),
  ),
  _gymnasium(
    'Hopper',
    (1000.0, 2000.0),
    '2382.86 ± 271.74',
    '2410.435 ± 10.026',
    missed=(
      '`impala`, V-trace, does not learn to hop: it does one gradient step where PPO does hundreds. '
      "Both have CleanRL's number of steps."
    ),
  ),
  Task(
    name='reacher',
    title='Reacher',
    about=(
      "Gymnasium's Reacher-v5, on MuJoCo, with two actions. Both programs have few steps. `qt_opt` "
      'keeps them in replay; PPO uses each batch ten times, and then drops it.'
    ),
    rows=(systems.ours('qt_opt', _REACHER, 20_000), systems.ppo('sebulba', _REACHER, 20_000)),
    thresholds=(-20.0, -10.0),
    missed="`qt_opt` stays behind PPO. PPO's last batch ends after the budget, so it has more steps.",
  ),
  _control(
    'cartpole/swingup',
    600.0,
    '590.21 ± 16.72',
    missed="`impala`, V-trace, stays below the threshold and below CleanRL's figure. Why is not known.",
  ),
  _control(
    'walker/walk',
    400.0,
    '305.74 ± 92.15',
    missed=(
      "`impala`, V-trace, does not learn to walk. With one seed, the preset of Gymnasium's tasks did "
      'not change that.'
    ),
  ),
)
