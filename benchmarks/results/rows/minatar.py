"""MinAtar, and Breakout with one option at a time."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Published, Row, Task
from benchmarks.results.rows import systems

_GYMNAX = 'gymnax at 086ad95, README.md; settings in gymnax-blines at 3f029d6, agents/'
# For MinAtar, in examples/brax_minatar.ipynb of purejaxrl.
_PUREJAXRL = {'LR': 5e-3, 'NUM_ENVS': 64, 'NUM_MINIBATCHES': 8, 'ACTIVATION': 'relu'}
_STEPS = 3_000_000
_REPLAYED_STEPS = 1_000_000  # Of R2D2, whose updates per step are many: its preset's.
_SEARCHED_STEPS = 500_000  # A search costs milliseconds.


def _minatar(
  title: str,
  thresholds: tuple[float, ...],
  published: str,
  *,
  r2d2: bool = False,
  muzero: bool = False,
  peer: bool = True,
  missed: str = '',
) -> Task:
  """Returns a game of MinAtar.

  Args:
    title: such as 'Space Invaders'.
    thresholds: of the task.
    published: gymnax's figure; '' without one.
    r2d2: whether R2D2 has a row.
    muzero: whether MuZero has rows, with and without fresh targets.
    peer: whether purejaxrl's version of gymnax plays the game; two do not compile.
    missed: see `Task`.
  """
  game = title.replace(' ', '')
  gymnax = f'gymnax:{game}-MinAtar'
  rows: list[Row] = [
    systems.ppo('anakin', gymnax, _STEPS),
    systems.ours('anakin', gymnax, _STEPS),
    systems.ppo('sebulba', f'minatar:{game}', _STEPS),
    systems.ppo('impala', f'minatar:{game}', _STEPS),
  ]
  if r2d2:
    rows.append(systems.ours('r2d2', f'minatar:{game}', _REPLAYED_STEPS))
  if muzero:
    rows.append(systems.ours('muzero', f'minatar:{game}', _SEARCHED_STEPS))
    fresh = '--reanalyse_fraction=0.5', '--bootstrap=target'
    rows.append(
      systems.ours('muzero', f'minatar:{game}', _SEARCHED_STEPS, *fresh, label='muzero-reanalyse')
    )
  if peer:
    rows.append(systems.purejaxrl(gymnax, _STEPS, **_PUREJAXRL))
  quoted = Published(
    system='gymnax-blines, PPO',
    figure=published,
    protocol=f"one agent, without a spread; gymnax's {game}, 10,000,000 steps, MLP of 2 x 256",
    source=_GYMNAX,
  )
  games = f"gymnax's {game}, the others `minatar:{game}`."
  about = (
    f'`anakin` and purejaxrl play {games} purejaxrl has layers, as in its own settings, where ours '
    'have a convolution: [one difference at a time](#breakout-one-difference-at-a-time) has both alike.'
  )
  if not peer:
    about = f"`anakin` plays {games} purejaxrl's version of gymnax cannot play it."
  return Task(
    name=f'minatar/{title.lower().replace(" ", "_")}',
    title=title,
    about=about,
    rows=tuple(rows),
    thresholds=thresholds,
    published=(quoted,) if published else (),
    scale=(0.0, float(published)) if published else None,
    missed=missed,
  )


def _differences() -> Task:
  """Returns Breakout with PPO, and with one option at a time as V-trace or another system has it."""
  env, budget = 'gymnax:Breakout-MinAtar', 1_000_000
  adam = '--optimizer=adam', '--learning_rate=0.001'
  mlp = '--torso=mlp', '--mlp_sizes=64,64', '--activation=relu'

  def ppo(label: str, *flags: str) -> Launch:
    return systems.ppo('anakin', env, budget, *flags, label=label)

  return Task(
    name='breakout-differences',
    title='Breakout, one difference at a time',
    about=(
      'What separates PPO from V-trace on a task of a minute. Every row of ours is `anakin`. `ppo` has '
      'the preset, and each row below it changes one option. `mlp` has the layers of '
      "purejaxrl's network, and `mlp-twice` has its separate critic too. `vtrace` has V-trace's "
      'preset with RMSProp, and `vtrace-adam` changes the optimizer and its rate.'
    ),
    rows=(
      ppo('ppo'),
      ppo('one-epoch', '--num_epochs=1'),
      ppo('one-gradient-step', '--num_epochs=1', '--num_minibatches=1'),
      ppo('no-clip', '--clip_ratio=1e6'),
      ppo('raw-advantages', '--nonormalize_advantages'),
      ppo('constant-rate', '--learning_rate_schedule=constant'),
      ppo('fan-in', '--init=fan_in'),
      ppo('mlp', *mlp),
      ppo('mlp-twice', *mlp, '--separate_critic'),
      systems.ours('anakin', env, budget, label='vtrace'),
      systems.ours('anakin', env, budget, *adam, label='vtrace-adam'),
      systems.purejaxrl(env, budget, **_PUREJAXRL),
    ),
    thresholds=(5.0, 15.0, 30.0),
  )


GROUPS = (
  Group(
    name='minatar',
    title='MinAtar',
    about=(
      'Five games (Young and Tian 2019). A scaled return is the return over the figure that gymnax '
      'prints for PPO. A game without such a figure has no part in the mean.'
    ),
  ),
)

DIFFERENCES = _differences()

TASKS = (
  _minatar(
    'Breakout',
    (5.0, 15.0, 30.0),
    '28',
    r2d2=True,
    muzero=True,
    missed=(
      "`anakin`, V-trace, stays below purejaxrl's PPO: it does one gradient step a batch. `sebulba-ppo` "
      'does too, but plays the harder game: `minatar:Breakout` repeats actions at random, and that of '
      'gymnax does not.'
    ),
  ),
  _minatar(
    'Asterix',
    (5.0, 15.0),
    '15',
    r2d2=True,
    muzero=True,
    peer=False,
    missed=(
      "R2D2 has a fifth of the steps of DQN in MinAtar's paper, and has only begun to learn by then."
    ),
  ),
  _minatar('Freeway', (30.0, 50.0), '58', peer=False),
  _minatar('Space Invaders', (50.0, 100.0), '131', r2d2=True),
  _minatar(
    'Seaquest',
    (5.0, 20.0),
    '',
    peer=False,
    missed='`sebulba-ppo` and `anakin`, V-trace, stay far below `anakin-ppo`; why was not looked into.',
  ),
)
