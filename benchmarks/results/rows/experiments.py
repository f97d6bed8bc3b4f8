"""Experiments of bsuite."""

from __future__ import annotations

from benchmarks.results.declared import Experiment, Group, Published, Task

_PLOT = 'bsuite at effafc0, reports/standalone/images/bar_plot.png, read off the bars'
# bsuite's only environment explores for the whole run. Its episodes count from the first, so learning
# starts with the first batch and has many updates.
_FLAGS = (
  '--epsilon_base=0.05',
  '--samples_per_insert=16',
  '--min_replay_size=8',
)

GROUPS = (
  Group(
    name='bsuite',
    title='bsuite',
    about=(
      "All ids of three experiments under bsuite's protocol: one environment, and every training "
      'episode counts. A score is between 0 and 1. Curves are the mean training return over the ids. '
      "*Published* scores are of bsuite's own agents."
    ),
  ),
)


def _experiment(name: str, about: str, scores: dict[str, str]) -> Task:
  """Returns the task of an experiment, with the published scores of bsuite's agents."""
  return Task(
    name=f'bsuite/{name}',
    title=name,
    about=about,
    rows=(
      Experiment(
        label='r2d2',
        program='r2d2',
        env=f'bsuite:{name}/*',
        budget=10_000,
        flags=_FLAGS,
        seeds=(1,),
      ),
    ),
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
  ),
  _experiment(
    'memory_len',
    'The first observation shows what the last action has to be, 1 to 100 steps later. The score is the '
    'share of the 23 lengths that are learned within the episodes.',
    {'actor_critic_rnn': '0.65', 'boot_dqn': '0.04', 'dqn': '0.04'},
  ),
  _experiment(
    'umbrella_length',
    'The first action decides on the last reward, 1 to 100 steps later, among random rewards. The score '
    'is the share of the 23 lengths that are learned within the episodes.',
    {'actor_critic_rnn': '0.35', 'boot_dqn': '0.39', 'dqn': '0.48'},
  ),
)
