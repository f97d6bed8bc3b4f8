"""Experiments of bsuite."""

from __future__ import annotations

from benchmarks.results.declared import Experiment, Group, Published, Task

_PLOT = 'bsuite at effafc0, reports/standalone/images/bar_plot.png, read off the bars'
_EPISODES = 10_000

GROUPS = (
  Group(
    name='bsuite',
    title='bsuite',
    about=(
      "All ids of three experiments under bsuite's protocol: one environment, and every training "
      'episode counts. A score is between 0 and 1. Curves are the mean training return over the ids. '
      "*Published* scores are of bsuite's own agents. The other experiments are not run: their ids, "
      'without `mnist`, have up to 164 million steps, more than a day an agent at the rate of these '
      'rows.'
    ),
  ),
)


def _row(name: str, label: str, program: str, *flags: str) -> Experiment:
  return Experiment(
    label=label,
    program=program,
    env=f'bsuite:{name}/*',
    budget=_EPISODES,
    flags=flags,
    seeds=(1,),
  )


def _r2d2(name: str, core: str = '') -> Experiment:
  # bsuite's only environment explores for the whole run. Its episodes count from the first, so learning
  # starts with the first batch and has many updates.
  flags = '--epsilon_base=0.05', '--samples_per_insert=16', '--min_replay_size=8'
  if not core:
    return _row(name, 'r2d2', 'r2d2', *flags)
  return _row(name, f'r2d2-{core}', 'r2d2', *flags, f'--core={core}')


def _sebulba(name: str) -> Experiment:
  # An unroll has a whole episode of memory_len/22. All unrolls are of the only environment, so batches
  # are small.
  agent = '--agent=ppo', '--core=lstm', '--forget_bias=4'
  batch = '--unroll_length=128', '--batch_size=2', '--num_minibatches=2', '--learning_rate=0.001'
  return _row(name, 'sebulba-ppo-lstm', 'sebulba', *agent, *batch)


def _experiment(name: str, about: str, scores: dict[str, str], *rows: Experiment) -> Task:
  """Returns the task of an experiment, with the published scores of bsuite's agents."""
  return Task(
    name=f'bsuite/{name}',
    title=name,
    about=about,
    rows=rows,
    published=tuple(
      Published(
        system=agent,
        figure=f'about {score}',
        protocol="bsuite's score, default settings",
        source=_PLOT,
      )
      for agent, score in scores.items()
    ),
    measure='score',
  )


TASKS = (
  _experiment(
    'catch',
    'Catch with 20 seeds. The score is of the regret, so it counts how fast the agent learns.',
    {'actor_critic_rnn': '0.87', 'boot_dqn': '0.99', 'dqn': '0.91'},
    _r2d2('catch'),
    _sebulba('catch'),
  ),
  _experiment(
    'memory_len',
    'The first observation shows what the last action has to be, 1 to 100 steps later. The score is the '
    'share of the 23 lengths that are learned within the episodes.',
    {'actor_critic_rnn': '0.65', 'boot_dqn': '0.04', 'dqn': '0.04'},
    _r2d2('memory_len'),
    _sebulba('memory_len'),
  ),
  _experiment(
    'umbrella_length',
    'The first action decides on the last reward, 1 to 100 steps later, among random rewards. The score '
    'is the share of the 23 lengths that are learned within the episodes.',
    {'actor_critic_rnn': '0.35', 'boot_dqn': '0.39', 'dqn': '0.48'},
    _r2d2('umbrella_length'),
    _r2d2('umbrella_length', core='gru'),
    _r2d2('umbrella_length', core='lru'),
  ),
)
