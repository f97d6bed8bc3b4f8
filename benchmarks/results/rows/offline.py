"""Learning from what another run has recorded."""

from __future__ import annotations

from benchmarks.results.declared import Launch, Task
from benchmarks.results.rows import systems


def _qt_opt(label: str, *flags: str, **inputs: Launch) -> Launch:
  """Returns a row of QT-Opt on Pendulum, which reads the runs of other rows."""
  return Launch(
    label=label,
    program='qt_opt',
    env='gymnasium:Pendulum-v1',
    budget=10_000,
    flags=flags,
    inputs=inputs,
  )


_ONLINE = _qt_opt('online', '--record_unrolls')
_OFFLINE = _qt_opt('offline', '--online_share=0', offline_data=_ONLINE)

_CARTPOLE = 'cartpole'
# One environment, whose policy stays what it is.
_RECORDER = (
  *('--agent=ppo', '--record_unrolls', '--num_actors=1', '--envs_per_actor=1', '--env_groups=1'),
  *('--batch_size=4', '--learning_rate=1e-9'),
)
_EXPERT = systems.ppo('sebulba', _CARTPOLE, 500_000, label='expert')


def _episodes(count: int) -> Launch:
  """Returns the row that records about `count` episodes of the expert, of 500 steps each."""
  return Launch(
    label=f'episodes-{count}',
    program='sebulba',
    env=_CARTPOLE,
    budget=500 * count + 20,
    flags=_RECORDER,
    inputs={'init_from': _EXPERT},
  )


_RECORDED = {count: _episodes(count) for count in (1, 3, 15)}


def _imitation(agent: str, count: int) -> Launch:
  """Returns the row of an agent that learns from recorded episodes."""
  return Launch(
    label=f'{agent}-{count}',
    program='offline',
    env=_CARTPOLE,
    budget=320_000,
    flags=(f'--agent={agent}',),
    inputs={'offline_data': _RECORDED[count]},
  )


_CLONE = _imitation('bc', 1)
_TUNED = Launch(
  label='ppo-from-bc-1',
  program='sebulba',
  env=_CARTPOLE,
  budget=100_000,
  flags=('--agent=ppo',),
  inputs={'init_from': _CLONE},
)

TASKS = (
  Task(
    name='pendulum-offline',
    title='Pendulum, from recorded data',
    about=(
      'Every row is `qt_opt` on Pendulum. `online` records the transitions that the others read, of the '
      'same seed. `offline` learns from nothing else. `joint` learns from its own transitions too, and '
      '`joint-tuned` begins with the parameters of `offline`.'
    ),
    rows=(
      _ONLINE,
      _OFFLINE,
      _qt_opt('joint', offline_data=_ONLINE),
      _qt_opt('joint-tuned', offline_data=_ONLINE, init_from=_OFFLINE),
    ),
    thresholds=(-200.0,),
  ),
  Task(
    name='cartpole-imitation',
    title='CartPole, from recorded episodes of an expert',
    about=(
      '`expert` is PPO. The rows `episodes-N` begin with its parameters and hardly change them. They '
      'record N whole episodes and the beginning of another, in which the expert samples from its '
      'policy. `bc-N` is behaviour cloning of these and `avril-N` is AVRIL, of the same seed; their '
      'steps are transitions that they learn from, each many times, and not steps of an environment. '
      'Both reach the best return with one episode, so these rows do not tell them apart. '
      '`ppo-from-bc-1` is PPO that begins with the parameters of `bc-1`, beside `ppo`, which begins '
      'with new ones.'
    ),
    rows=(
      _EXPERT,
      *_RECORDED.values(),
      _CLONE,
      *(_imitation('bc', count) for count in (3, 15)),
      *(_imitation('avril', count) for count in _RECORDED),
      systems.ppo('sebulba', _CARTPOLE, 100_000, label='ppo'),
      _TUNED,
    ),
    thresholds=(475.0,),
  ),
)
