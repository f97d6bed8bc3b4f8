"""Continuous control on MuJoCo: Gymnasium's tasks, and the Control Suite's."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Published, Task
from benchmarks.results.rows import quoted, systems

_BUDGET = 1_000_000
_SAC_BUDGET = 100_000  # An update for each step costs hours of two cores for a million.
_REACHER = 'gymnasium:Reacher-v5'


def _gymnasium(
  name: str,
  thresholds: tuple[float, ...],
  *,
  sac: tuple[str, str],
  ppo: tuple[str, str] | None = None,
  missed: str = '',
  about: str = '',
  others: tuple[Launch, ...] = (),
) -> Task:
  """Returns a task of Gymnasium.

  Args:
    name: of the task.
    thresholds: of its returns.
    sac: CleanRL's figure of SAC, and that of Stable-Baselines3.
    ppo: the same of PPO, for a task with rows of PPO and V-trace too.
    missed: where an aim was missed.
  """
  env, steps = f'gymnasium:{name}-v5', '1,000,000 steps'
  rows, published = [systems.ours('sac', env, _SAC_BUDGET)], list[Published]()
  if ppo:
    rows += [systems.ppo('sebulba', env, _BUDGET), systems.ours('impala', env, _BUDGET)]
    published += [
      quoted.cleanrl(ppo[0], f'{name}-v4, {steps}, {quoted.SEEDS}', quoted.CLEANRL_MUJOCO),
      quoted.zoo(ppo[1], f'{name}-v3, {steps}'),
    ]
  published += [
    quoted.cleanrl(sac[0], f'{name}-v2, {steps} by the script', quoted.CLEANRL_SAC, 'SAC'),
    quoted.zoo(sac[1], f'{name}-v3, {steps}', 'SAC'),
  ]
  return Task(
    name=name.lower(),
    title=name,
    about=f"Gymnasium's {name}-v5, on MuJoCo. `sac` has a tenth of the published steps.{about}",
    rows=(*rows, *others),
    thresholds=thresholds,
    published=tuple(published),
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
    ppo=('1442.64 ± 46.03', '5819.099 ± 663.530'),
    sac=('9634.89 ± 1423.73', '9535.451 ± 100.470'),
    missed=(
      "`sebulba-ppo` and `impala`, V-trace, are above CleanRL's PPO, and below that of "
      'Stable-Baselines3. `sac` has a third of the published return after a tenth of the steps. The '
      'steps of `evolution` are ten generations, too few for the first threshold with most seeds.'
    ),
    about=(
      ' `sac-1m` has all of them, with one seed: each takes hours. `evolution` has 300,000 steps, less '
      'than a third of the others.'
    ),
    others=(
      systems.ours('sac', 'gymnasium:HalfCheetah-v5', _BUDGET, label='sac-1m', seeds=(1,)),
      # With the default share, so few steps have time for two evaluations.
      systems.ours('evolution', 'gymnasium:HalfCheetah-v5', 300_000, '--eval_share=0.2'),
    ),
  ),
  _gymnasium(
    'Hopper',
    (1000.0, 2000.0),
    ppo=('2382.86 ± 271.74', '2410.435 ± 10.026'),
    sac=('2310.46 ± 342.82', '2325.547 ± 1129.676'),
    missed=(
      'Of `impala`, V-trace, one seed hops and two stand still or fall. `sac` has half of the published '
      'return after a tenth of the steps, and one of its seeds has only begun to hop.'
    ),
  ),
  _gymnasium(
    'Walker2d',
    (1000.0, 3500.0),
    sac=('3591.45 ± 911.33', '3863.203 ± 254.347'),
    missed='`sac` has a tenth of the published steps. One seed walks by then, two have only begun.',
  ),
  Task(
    name='reacher',
    title='Reacher',
    about=(
      "Gymnasium's Reacher-v5, on MuJoCo, with two actions. All programs have few steps. `sac` and "
      '`qt_opt` keep them in replay; PPO uses each batch ten times, and then drops it.'
    ),
    rows=(
      systems.ours('sac', _REACHER, 20_000),
      systems.ours('qt_opt', _REACHER, 20_000),
      systems.ppo('sebulba', _REACHER, 20_000),
    ),
    thresholds=(-20.0, -10.0),
    missed="`qt_opt` stays behind PPO. PPO's last batch ends after the budget, so it has more steps.",
  ),
  _control(
    'cartpole/swingup',
    600.0,
    '590.21 ± 16.72',
    missed='One seed of `impala`, V-trace, ends below the threshold.',
  ),
  _control(
    'walker/walk',
    400.0,
    '305.74 ± 92.15',
    missed=(
      'One seed of `impala`, V-trace, passes the threshold, the others learn more slowly. With an '
      'earlier preset of an eighth of the updates it had 34.'
    ),
  ),
)
