"""The rows of the results page: what `python -m benchmarks.results` runs.

If a row's environment, flags, budget or preset change, its recorded runs are no longer its own: they
leave the page, and the next command runs the row again. Further seeds run alone; thresholds and
published figures need no runs.
"""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Peer, Published, Row, Task

_CLEANRL = 'CleanRL at fe8d8a0, docs/rl-algorithms/ppo.md'
_CLEANRL_MUJOCO = 'CleanRL at fe8d8a0, docs/benchmark/ppo_continuous_action.md'
_CLEANRL_CONTROL = 'CleanRL at fe8d8a0, docs/rl-algorithms/rpo.md'
# Those tables print neither; the scripts have the steps as their default.
_SEEDS = '3 seeds (steps by the script, seeds by benchmark/ppo.sh)'
_ZOO = 'RL Baselines3 Zoo at 0088472, benchmark.md'
_GYMNAX = 'gymnax at 086ad95, README.md; settings in gymnax-blines at 3f029d6, agents/'


def _ours(program: str, env: str, budget: int, *flags: str, label: str = '') -> Launch:
  """Returns a row of a program; its label is the program's name by default."""
  return Launch(label=label or program, program=program, env=env, budget=budget, flags=flags)


def _ppo(program: str, env: str, budget: int, *flags: str, label: str = '') -> Launch:
  """Returns a row of a program with PPO; its label is the program's name and -ppo by default."""
  return _ours(program, env, budget, '--agent=ppo', *flags, label=label or f'{program}-ppo')


def _muzero(env: str, budget: int, *flags: str, label: str = 'anakin-muzero') -> Launch:
  """Returns a row of MuZero under Anakin."""
  return _ours('anakin', env, budget, '--agent=muzero', *flags, label=label)


def _cleanrl(figure: str, what: str, source: str = _CLEANRL) -> Published:
  return Published(
    system='CleanRL, PPO',
    figure=figure,
    protocol=f'training returns at the end, averaged over seeds, ± as printed; {what}',
    source=source,
  )


def _zoo(figure: str, what: str) -> Published:
  return Published(
    system='Stable-Baselines3, PPO',
    figure=figure,
    protocol=f'one run, deterministic policy, mean and standard deviation over episodes; {what}',
    source=_ZOO,
  )


# The settings for MinAtar in examples/brax_minatar.ipynb of purejaxrl.
_PUREJAXRL = {
  'LR': 5e-3,
  'NUM_ENVS': 64,
  'NUM_STEPS': 128,
  'UPDATE_EPOCHS': 4,
  'NUM_MINIBATCHES': 8,
  'GAMMA': 0.99,
  'GAE_LAMBDA': 0.95,
  'CLIP_EPS': 0.2,
  'ENT_COEF': 0.01,
  'VF_COEF': 0.5,
  'MAX_GRAD_NORM': 0.5,
  'ACTIVATION': 'relu',
  'ANNEAL_LR': True,
}
_MINATAR_STEPS = 10_000_000
_SHORT_MINATAR_STEPS = 3_000_000
_SEARCHED_STEPS = 500_000  # A search costs milliseconds.

# CleanRL's settings for Pong in minutes (its README), with four times the learning rate, the game's own
# actions and small screens.
_PONG = (
  '--env_options=full_action_space=false,screen=42',
  '--num_actors=2',
  '--envs_per_actor=8',
  '--batch_size=16',
  '--queue_size=16',
  '--minibatch_of=transitions',
  '--num_epochs=3',
  '--num_minibatches=8',
  '--clip_ratio=0.2',
  '--learning_rate=0.001',
)
_PONG_STEPS = 6_000_000


def _minatar(
  title: str,
  thresholds: tuple[float, ...],
  published: str,
  *,
  r2d2: bool = False,
  muzero: bool = False,
  peer: bool = True,
) -> Task:
  """Returns a game of MinAtar.

  Args:
    title: such as 'Space Invaders'.
    thresholds: of the task.
    published: gymnax's figure; '' without one.
    r2d2: whether R2D2 has a row.
    muzero: whether MuZero has rows, with and without fresh targets.
    peer: whether purejaxrl's version of gymnax has the game.
  """
  game = title.replace(' ', '')
  gymnax = f'gymnax:{game}-MinAtar'
  rows: list[Row] = [
    _ppo('anakin', gymnax, _MINATAR_STEPS),
    _ours('anakin', gymnax, _MINATAR_STEPS),
    _ppo('sebulba', f'minatar:{game}', _SHORT_MINATAR_STEPS),
    _ppo('impala', f'minatar:{game}', _SHORT_MINATAR_STEPS),
  ]
  if r2d2:
    rows.append(_ours('r2d2', f'minatar:{game}', _SHORT_MINATAR_STEPS))
  if muzero:
    rows.append(_ours('muzero', f'minatar:{game}', _SEARCHED_STEPS))
    fresh = '--reanalyse_fraction=0.5', '--bootstrap=target'
    rows.append(
      _ours('muzero', f'minatar:{game}', _SEARCHED_STEPS, *fresh, label='muzero-reanalyse')
    )
  if peer:
    rows.append(
      Peer(
        label='purejaxrl-ppo',
        peer='purejaxrl',
        env=gymnax,
        budget=_MINATAR_STEPS,
        given={'config': _PUREJAXRL},
      )
    )
  quoted = Published(
    system='gymnax-blines, PPO',
    figure=published,
    protocol=f"one agent, without a spread; gymnax's {game}, 10,000,000 steps, MLP of 2 x 256",
    source=_GYMNAX,
  )
  return Task(
    name=f'minatar/{title.lower().replace(" ", "_")}',
    title=title,
    about=f"`anakin` and purejaxrl play gymnax's {game}, the others `minatar:{game}`.",
    rows=tuple(rows),
    thresholds=thresholds,
    published=(quoted,) if published else (),
    scale=(0.0, float(published)) if published else None,
  )


def _differences() -> Task:
  """Returns Breakout with PPO, and with one option at a time as V-trace or another system has it."""
  env, budget = 'gymnax:Breakout-MinAtar', 1_000_000
  rate = '--learning_rate=0.005', '--learning_rate_schedule=linear'

  def ppo(label: str, *flags: str) -> Launch:
    return _ppo('anakin', env, budget, *flags, label=label)

  return Task(
    name='breakout-differences',
    title='Breakout, one difference at a time',
    about=(
      'What separates PPO from V-trace on a task of a minute. Every row is `anakin`. `ppo` has the '
      'preset, and each row below it changes one option. `vtrace` has its learning rate and schedule.'
    ),
    rows=(
      ppo('ppo'),
      ppo('one-epoch', '--num_epochs=1'),
      ppo('one-gradient-step', '--num_epochs=1', '--num_minibatches=1'),
      ppo('no-clip', '--clip_ratio=1e6'),
      ppo('raw-advantages', '--nonormalize_advantages'),
      ppo('constant-rate', '--learning_rate_schedule=constant'),
      ppo('fan-in', '--init=fan_in'),
      ppo('mlp', '--torso=mlp'),
      _ours('anakin', env, budget, *rate, label='vtrace'),
    ),
    thresholds=(5.0, 15.0, 30.0),
  )


def _random_abc() -> Task:
  """Returns Random ABC with learned intrinsic rewards, their ablations and baselines."""

  def lifetimes(label: str, *flags: str) -> Launch:
    return Launch(
      label=label,
      program='intrinsic_rewards',
      env='lifetime:random_abc',
      budget=5_000_000,
      flags=flags,
      seeds=(1, 2, 3, 4, 5),
    )

  return Task(
    name='random-abc',
    title='Random ABC',
    about=(
      'Lifetimes of 50 choices between three objects (Zheng et al. 2020). Every row is '
      '`intrinsic_rewards`. All inner policies have step size 1, except for `extrinsic-tuned`.'
    ),
    rows=(
      lifetimes('gru-lifetime'),
      lifetimes('gru-episode', '--outer_objective=episode'),
      lifetimes('feed-forward', '--reward_memory=none'),
      lifetimes('feed-forward-blind', '--reward_memory=none', '--noreward_sees_extrinsic'),
      lifetimes('extrinsic', '--inner_reward=extrinsic'),
      lifetimes('count', '--inner_reward=count'),
      lifetimes('extrinsic-tuned', '--inner_reward=extrinsic', '--inner_learning_rate=4'),
    ),
    episodes=1000,
  )


def _control(name: str, threshold: float, figure: str) -> Task:
  """Returns a task of the Control Suite."""
  env, budget = f'dm_control:{name}', 1_000_000
  return Task(
    name=f'control/{name.replace("/", "-")}',
    title=name,
    about=f'`{env}`, observed by its state.',
    rows=(_ppo('sebulba', env, budget), _ours('impala', env, budget)),
    thresholds=(threshold,),
    published=(_cleanrl(figure, f'{name}, 8,000,000 steps, 10 seeds', _CLEANRL_CONTROL),),
    scale=(0.0, 1000.0),
    episodes=30,
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
    name='catch',
    title='Catch',
    about="bsuite's Catch. The best return is 1, that of random actions about -0.6.",
    rows=(
      _ours('sebulba', 'catch', 300_000),
      _ours('impala', 'catch', 300_000),
      _ours('r2d2', 'catch', 100_000),
      _ours('anakin', 'catch', 300_000),
      _ours('muzero', 'catch', 150_000),
      _muzero('catch', 150_000),
    ),
    thresholds=(0.95,),
  ),
  Task(
    name='cartpole',
    title='CartPole',
    about="Gymnasium's CartPole-v1, which counts as solved at 475; `anakin` plays gymnax's.",
    rows=(
      _ours('sebulba', 'cartpole', 1_000_000),
      _ppo('sebulba', 'cartpole', 1_000_000),
      _ours('impala', 'cartpole', 1_000_000),
      _ours('r2d2', 'cartpole', 500_000),
      _ours('muzero', 'cartpole', 200_000),
      _ours('anakin', 'gymnax:CartPole-v1', 2_000_000),
      _ppo('anakin', 'gymnax:CartPole-v1', 2_000_000),
    ),
    thresholds=(475.0,),
    published=(
      _cleanrl('490.04 ± 6.12', f'CartPole-v1, 500,000 steps, {_SEEDS}'),
      _zoo('500.000 ± 0.000', 'CartPole-v1, 100,000 steps'),
    ),
  ),
  Task(
    name='acrobot',
    title='Acrobot',
    about="Gymnasium's Acrobot-v1, which counts as solved at -100; `anakin` plays gymnax's.",
    rows=(
      _ours('sebulba', 'gymnasium:Acrobot-v1', 1_000_000),
      _ppo('sebulba', 'gymnasium:Acrobot-v1', 1_000_000),
      _ours('impala', 'gymnasium:Acrobot-v1', 1_000_000),
      _ours('anakin', 'gymnax:Acrobot-v1', 2_000_000),
      _ppo('anakin', 'gymnax:Acrobot-v1', 2_000_000),
    ),
    thresholds=(-100.0, -90.0),
    published=(
      _cleanrl('-86.36 ± 1.32', f'Acrobot-v1, 500,000 steps, {_SEEDS}'),
      _zoo('-73.506 ± 18.201', 'Acrobot-v1, 1,000,000 steps'),
    ),
  ),
  Task(
    name='lunarlander',
    title='LunarLander',
    about="Gymnasium's LunarLander-v3, which counts as solved at 200. It needs Box2D.",
    rows=(
      _ppo('sebulba', 'gymnasium:LunarLander-v3', 2_000_000),
      _ours('impala', 'gymnasium:LunarLander-v3', 2_000_000),
    ),
    thresholds=(200.0,),
    published=(_zoo('242.119 ± 31.823', 'LunarLander-v2, 1,000,000 steps'),),
  ),
  Task(
    name='pendulum',
    title='Pendulum',
    about="Gymnasium's Pendulum-v1, with continuous actions; `anakin` plays gymnax's.",
    rows=(
      _ours('qt_opt', 'gymnasium:Pendulum-v1', 20_000),
      _ours('sebulba', 'gymnasium:Pendulum-v1', 1_000_000),
      _ours('impala', 'gymnasium:Pendulum-v1', 1_000_000),
      _ours('anakin', 'gymnax:Pendulum-v1', 1_000_000),
      _ppo('anakin', 'gymnax:Pendulum-v1', 1_000_000),
    ),
    thresholds=(-200.0,),
    published=(_zoo('-172.225 ± 104.159', 'Pendulum-v1, 100,000 steps'),),
  ),
  Task(
    name='memory-len',
    title='Memory length',
    about=(
      "bsuite's memory_len/15. The first observation shows what the last action has to be. The best "
      'return is 1, and the expected return of an agent without memory is 0.'
    ),
    rows=(
      _ours('r2d2', 'bsuite:memory_len/15', 300_000),
      _ours('sebulba', 'bsuite:memory_len/15', 1_000_000, '--core=lstm', label='sebulba-lstm'),
    ),
    thresholds=(0.9,),
  ),
  Task(
    name='tic-tac-toe',
    title='Tic-tac-toe',
    about=(
      "pgx's tic-tac-toe, learned by self-play. The return is the outcome against a perfect player: a "
      'mean of 0 over 1,000 games means that none was lost.'
    ),
    rows=(_muzero('pgx:tic_tac_toe', 1_000_000, '--env_options=opponent=perfect'),),
    thresholds=(-0.1, 0.0),
    episodes=1000,
  ),
  _differences(),
  _random_abc(),
  _minatar('Breakout', (5.0, 15.0, 30.0), '28', r2d2=True, muzero=True),
  _minatar('Asterix', (5.0, 10.0), '15', r2d2=True, muzero=True),
  _minatar('Freeway', (30.0, 50.0), '58'),
  _minatar('Space Invaders', (50.0, 100.0), '131', r2d2=True),
  _minatar('Seaquest', (5.0, 20.0), '', peer=False),
  Task(
    name='halfcheetah',
    title='HalfCheetah',
    about="Gymnasium's HalfCheetah-v5, on MuJoCo.",
    rows=(
      _ppo('sebulba', 'gymnasium:HalfCheetah-v5', 1_000_000),
      _ours('impala', 'gymnasium:HalfCheetah-v5', 1_000_000),
    ),
    thresholds=(1000.0, 4800.0),
    published=(
      _cleanrl('1442.64 ± 46.03', f'HalfCheetah-v4, 1,000,000 steps, {_SEEDS}', _CLEANRL_MUJOCO),
      _zoo('5819.099 ± 663.530', 'HalfCheetah-v3, 1,000,000 steps'),
    ),
    episodes=30,
  ),
  Task(
    name='hopper',
    title='Hopper',
    about="Gymnasium's Hopper-v5, on MuJoCo.",
    rows=(
      _ppo('sebulba', 'gymnasium:Hopper-v5', 1_000_000),
      _ours('impala', 'gymnasium:Hopper-v5', 1_000_000),
    ),
    thresholds=(1000.0, 2000.0),
    published=(
      _cleanrl('2382.86 ± 271.74', f'Hopper-v4, 1,000,000 steps, {_SEEDS}', _CLEANRL_MUJOCO),
      _zoo('2410.435 ± 10.026', 'Hopper-v3, 1,000,000 steps'),
    ),
    episodes=30,
  ),
  _control('cartpole/swingup', 600.0, '590.21 ± 16.72'),
  _control('walker/walk', 400.0, '305.74 ± 92.15'),
  Task(
    name='pong',
    title='Pong',
    about='The protocol of the returns is below; a step is 4 frames.',
    rows=(
      _ppo('sebulba', 'atari:Pong', _PONG_STEPS, *_PONG),
      _ppo('impala', 'atari:Pong', _PONG_STEPS, *_PONG),
      Peer(
        label='sample-factory-appo',
        peer='sample_factory',
        env='atari:Pong',
        budget=_PONG_STEPS,
        given={'num_actors': 2, 'envs_per_actor': 32},
        action_repeat=4,
      ),
    ),
    thresholds=(0.0, 18.0),
    published=(
      Published(
        system='IMPALA, deep network',
        figure='20.98',
        protocol='200M frames, no sticky actions, up to 30 no-ops',
        source='Espeholt et al. 2018, table C.1',
      ),
      Published(
        system='IMPALA, shallow network',
        figure='20.40',
        protocol='200M frames, no sticky actions, up to 30 no-ops',
        source='Espeholt et al. 2018, table C.1',
      ),
      Published(
        system='R2D2',
        figure='21.0',
        protocol='about 10 billion frames, no sticky actions, up to 30 no-ops',
        source='Kapturowski et al. 2019, table 4',
      ),
      Published(
        system='Cleanba, IMPALA',
        figure='19.09 ± 0.34',
        protocol='200M frames, sticky actions 0.25, all 18 actions, one A100',
        source='Cleanba at d1f8979, static/cleanba/',
      ),
      _cleanrl('20.36 ± 0.20', f'PongNoFrameskip-v4, 10,000,000 steps, {_SEEDS}'),
    ),
    episodes=30,
  ),
)
