"""MinAtar, and Breakout with one option at a time."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Published, Row, Task
from benchmarks.results.rows import systems

_GYMNAX = 'gymnax at 086ad95, README.md; settings in gymnax-blines at 3f029d6, agents/'
# For MinAtar, in examples/brax_minatar.ipynb of purejaxrl.
_PUREJAXRL = {'LR': 5e-3, 'NUM_ENVS': 64, 'NUM_MINIBATCHES': 8, 'ACTIVATION': 'relu'}
# DQN's and AC(0.8)'s in MinAtar's paper after 5,000,000 frames. Seaquest had a defect then.
_DQN = {'Breakout': 10, 'Asterix': 17, 'Freeway': 50, 'Space Invaders': 45, 'Seaquest': 20}
_AC = {'Breakout': 17.5, 'Asterix': 19, 'Freeway': 47, 'Space Invaders': 185, 'Seaquest': 16}
_CHANGED = 'Seaquest'  # Since those figures, which therefore are no scale.
# gymnax's for PPO.
_FIGURES = {'Breakout': '28', 'Asterix': '15', 'Freeway': '58', 'Space Invaders': '131'}
_GYMNAX_OPTIONS = '--env_options=sticky_actions=0,full_action_space=false,max_episode_steps=1000'
_MLP = '--torso=mlp', '--mlp_sizes=64,64', '--activation=relu'  # As purejaxrl's layers.
_STEPS = 3_000_000
_LONG_STEPS = 10_000_000  # As gymnax's figures.
_REPLAYED_STEPS = 1_000_000  # Of R2D2, whose updates per step are many: its preset's.
_DQN_STEPS = 5_000_000  # As the figures of MinAtar's paper.
_SEARCHED_STEPS = 500_000  # A search costs milliseconds.


def _minatar(
  title: str,
  thresholds: tuple[float, ...],
  *,
  r2d2: bool = False,
  r2d2_longer: bool = False,
  muzero: bool = False,
  missed: str = '',
) -> Task:
  """Returns a game as the package has it, which all our programs play.

  Args:
    title: such as 'Space Invaders'.
    thresholds: of the task.
    r2d2: whether R2D2 has a row.
    r2d2_longer: whether it has another, with the steps of DQN in MinAtar's paper.
    muzero: whether MuZero has rows, with and without fresh targets.
    missed: see `Task`.
  """
  env = f'minatar:{title.replace(" ", "")}'
  rows: list[Row] = [
    systems.ppo(program, env, _STEPS) for program in ('anakin', 'sebulba', 'impala')
  ]
  if r2d2:
    rows.append(systems.ours('r2d2', env, _REPLAYED_STEPS))
  if r2d2_longer:
    rows.append(systems.ours('r2d2', env, _DQN_STEPS, label='r2d2-5m'))
  if muzero:
    rows.append(systems.ours('muzero', env, _SEARCHED_STEPS))
    fresh = '--reanalyse_fraction=0.5', '--bootstrap=target'
    rows.append(systems.ours('muzero', env, _SEARCHED_STEPS, *fresh, label='muzero-reanalyse'))
  return Task(
    name=f'minatar/{_lower(title)}',
    title=title,
    about=f'Every row plays `{env}`. Under Anakin that game is in JAX, with the same transitions.',
    rows=tuple(rows),
    thresholds=thresholds,
    published=(
      _of_the_paper('DQN', _DQN[title], title),
      _of_the_paper('actor-critic, AC(0.8)', _AC[title], title),
    ),
    scale=None if title == _CHANGED else (0.0, float(_DQN[title])),
    missed=missed,
  )


def _of_the_paper(system: str, figure: float, title: str) -> Published:
  """Returns a figure of MinAtar's paper."""
  older = '; MinAtar 1.0.10, whose oxygen bar had a defect' if title == _CHANGED else ''
  return Published(
    system=f'Young and Tian, {system}',
    figure=f'about {figure:g}',
    protocol=f'training return of 30 runs after 5,000,000 frames; read off a plot{older}',
    source='MinAtar, README.md, Results',
  )


def _in_gymnax(
  title: str, thresholds: tuple[float, ...], *, peer: bool = False, missed: str = ''
) -> Task:
  """Returns a game as gymnax has it, for which others print figures.

  Args:
    title: such as 'Space Invaders'.
    thresholds: of the task.
    peer: whether purejaxrl's version of gymnax plays the game; two do not compile. Then the programs
      that step the package's game have rows too, with gymnax's options.
    missed: see `Task`.
  """
  game = title.replace(' ', '')
  env = f'gymnax:{game}-MinAtar'
  rows: list[Row] = [systems.ppo('anakin', env, _STEPS), systems.ours('anakin', env, _STEPS)]
  about = f"`anakin` plays gymnax's {game}. purejaxrl's version of gymnax cannot play it."
  if peer:
    rows.insert(1, systems.ppo('anakin', env, _STEPS, *_MLP, label='anakin-ppo-mlp'))
    rows += [
      systems.ppo(program, f'minatar:{game}', _STEPS, _GYMNAX_OPTIONS)
      for program in ('sebulba', 'impala')
    ]
    rows += [systems.purejaxrl(env, _STEPS, **_PUREJAXRL), systems.purejaxql(env, _STEPS)]
    about = (
      f"`anakin`, purejaxrl and purejaxql play gymnax's {game}, the others the package's with gymnax's "
      'options. '
      '`anakin-ppo-mlp` has layers, as purejaxrl has in its own settings. The other rows of PPO have a '
      'convolution, which takes more time: see '
      '[one difference at a time](#breakout-one-difference-at-a-time).'
    )
  rows.append(systems.pqn('anakin', env, _STEPS))
  return Task(
    name=f'gymnax-minatar/{_lower(title)}',
    title=f"gymnax's {title}",
    about=about,
    rows=tuple(rows),
    thresholds=thresholds,
    published=_of_gymnax(title),
    scale=_up_to_gymnax(title),
    missed=missed,
  )


def _longer(title: str, thresholds: tuple[float, ...], *, missed: str = '') -> Task:
  """Returns a game as gymnax has it, for as many steps as gymnax's figures, beside its peers."""
  env = f'gymnax:{title.replace(" ", "")}-MinAtar'
  return Task(
    name=f'gymnax-minatar-long/{_lower(title)}',
    title=f"gymnax's {title}, 10M steps",
    about=f"The rows of PPO and PQN above that play gymnax's own game, `{env}`, for more steps.",
    rows=(
      systems.ppo('anakin', env, _LONG_STEPS),
      systems.ppo('anakin', env, _LONG_STEPS, *_MLP, label='anakin-ppo-mlp'),
      systems.purejaxrl(env, _LONG_STEPS, **_PUREJAXRL),
      systems.pqn('anakin', env, _LONG_STEPS),
    ),
    thresholds=thresholds,
    published=_of_gymnax(title),
    scale=_up_to_gymnax(title),
    missed=missed,
  )


def _of_gymnax(title: str) -> tuple[Published, ...]:
  """Returns the figure that gymnax prints for PPO on a game, if it prints one."""
  if title not in _FIGURES:
    return ()
  game = title.replace(' ', '')
  protocol = (
    f"one agent, without a spread; gymnax's {game}, 10,000,000 steps, MLP of 2 x 256; its evaluation "
    'samples actions'
  )
  return (
    Published(
      system='gymnax-blines, PPO', figure=_FIGURES[title], protocol=protocol, source=_GYMNAX
    ),
  )


def _up_to_gymnax(title: str) -> tuple[float, float] | None:
  return (0.0, float(_FIGURES[title])) if title in _FIGURES else None


def _lower(title: str) -> str:
  return title.lower().replace(' ', '_')


def _differences() -> Task:
  """Returns Breakout with PPO, and with one option at a time as V-trace or another system has it."""
  env, budget = 'gymnax:Breakout-MinAtar', 1_000_000
  adam = '--optimizer=adam', '--learning_rate=0.001'

  def ppo(label: str, *flags: str) -> Launch:
    return systems.ppo('anakin', env, budget, *flags, label=label)

  return Task(
    name='breakout-differences',
    title='Breakout, one difference at a time',
    about=(
      'What separates PPO from V-trace on a small task. Every row of ours is `anakin`. `ppo` has the '
      'preset. The rows down to `fan-in` change one option each, except for `one-gradient-step`, which '
      'has one epoch and one minibatch. `mlp` has the layers of '
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
      ppo('mlp', *_MLP),
      ppo('mlp-twice', *_MLP, '--separate_critic'),
      systems.ours('anakin', env, budget, label='vtrace'),
      systems.ours('anakin', env, budget, *adam, label='vtrace-adam'),
      systems.purejaxrl(env, budget, **_PUREJAXRL),
    ),
    thresholds=(5.0, 15.0, 30.0),
  )


_GAMES = 'Five games (Young and Tian 2019)'
GROUPS = (
  Group(
    name='minatar',
    title='MinAtar',
    about=(
      f'{_GAMES}, as the package `minatar` has them: with probability 0.1 a step repeats the previous '
      f'action, and all six actions are open. A scaled return is the return over that of DQN in the '
      "paper, after more steps than ours. Seaquest has none: the paper's version had a defect."
    ),
  ),
  Group(
    name='gymnax-minatar',
    title='MinAtar in gymnax',
    about=(
      f'{_GAMES}, as gymnax has them: actions do not stick, only useful ones are open, and episodes '
      "have at most 1,000 steps (Freeway 2,500). Returns differ from those of the package's games: "
      'higher in Breakout, lower in Space Invaders. Little is random in them, so all greedy episodes '
      'of one policy may be alike. The curves of purejaxrl are those of sampled actions, and may '
      'reach what its greedy policy does not. A scaled return is the return over the figure that '
      'gymnax prints for PPO. A game without such a figure has no part in the mean.'
    ),
  ),
  Group(
    name='gymnax-minatar-long',
    title='MinAtar in gymnax, 10M steps',
    about=(
      "gymnax's games for as many steps as its figures. The learning rate decays over the whole run, so "
      'these curves are not those above, continued. A scaled return is the return over that figure.'
    ),
  ),
)

DIFFERENCES = _differences()

TASKS = (
  _minatar(
    'Breakout',
    (5.0, 15.0, 30.0),
    r2d2=True,
    muzero=True,
    missed=(
      'The aim for MuZero is 15 within 1M steps. Its rows have half of these, and about half of that. '
      'Twice the updates, a rate that decays, a policy that explores for longer and a smaller replay '
      'changed little ([notes](../benchmarks/NOTES.md#learning)).'
    ),
  ),
  _minatar(
    'Asterix',
    (5.0, 15.0),
    r2d2=True,
    r2d2_longer=True,
    muzero=True,
    missed=(
      "`r2d2` has a fifth of the steps of DQN in MinAtar's paper, and the rows of MuZero a tenth. They "
      'have only begun to learn by then.'
    ),
  ),
  _minatar('Freeway', (30.0, 50.0)),
  _minatar(
    'Space Invaders',
    (50.0, 100.0),
    r2d2=True,
    r2d2_longer=True,
  ),
  _minatar(
    'Seaquest',
    (5.0, 20.0),
    missed=(
      'Under Anakin, whose preset has an `--entropy_cost` of 0.03 for this game, all three seeds learn '
      'to surface. So do two of three under Sebulba with the same cost. None do under IMPALA, so more '
      'exploration is not enough where unrolls wait in the queue.'
    ),
  ),
  _in_gymnax(
    'Breakout',
    (5.0, 15.0, 30.0),
    peer=True,
    missed=(
      "`anakin`, V-trace, stays below purejaxrl's PPO: it does one gradient step a batch. `anakin-pqn` "
      "stays below PPO as well, and a little below its authors' code."
    ),
  ),
  _in_gymnax('Asterix', (5.0, 15.0)),
  _in_gymnax('Freeway', (30.0, 50.0)),
  _in_gymnax('Space Invaders', (50.0, 100.0), peer=True),
  _in_gymnax(
    'Seaquest',
    (5.0, 20.0),
    missed=(
      '`anakin`, V-trace, and `anakin-pqn` stay far below `anakin-ppo`. On Breakout most of the '
      'difference of V-trace is the number of gradient steps: see [one difference at a '
      'time](#breakout-one-difference-at-a-time). Why PQN stays below is not known.'
    ),
  ),
  _longer('Breakout', (5.0, 15.0, 30.0)),
  _longer('Space Invaders', (50.0, 100.0), missed='`anakin-pqn` stays below `anakin-ppo`.'),
)
