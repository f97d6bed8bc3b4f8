"""Populations from badly chosen ranges, beside a random search with equal steps."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Task
from benchmarks.results.rows import systems

# Each range has some values with which one learner learns, and many with which it does not.
_CATCH = '--tune=learning_rate=3e-6..3e-1,entropy_cost=1e-4..1'
_CARTPOLE = '--tune=learning_rate=1e-6..1,entropy_cost=1e-4..1,discount=0.5..0.9999'
_MEMBERS = '--num_members=8'


def _row(program: str, env: str, budget: int, tune: str, label: str, *flags: str) -> Launch:
  return systems.ours(program, env, budget, _MEMBERS, tune, *flags, label=label)


def _rows(env: str, budget: int, tune: str) -> tuple[Launch, ...]:
  """Returns both rules, pods, and nobody who copies."""
  of_anakin = (
    ('population', ()),
    ('population-tournament', ('--selection=tournament',)),
    ('population-pods', ('--selection=tournament', '--num_pods=2')),
    ('random-search', ('--selection=none',)),
  )
  return tuple(_row('population', env, budget, tune, label, *flags) for label, flags in of_anakin)


GROUPS = (
  Group(
    name='population',
    title='Populations',
    about=(
      'Eight members that begin with values spread over badly chosen ranges. All members together have '
      'the steps of the command. `random-search` is the same population, of which nobody copies. The '
      'return is that of the member with the best last score; the notes have the last scores of all '
      'members, mean training returns with exploration.'
    ),
  ),
)

TASKS = (
  Task(
    name='population/catch',
    title='Catch',
    about='`population-sebulba` has actors, and fewer steps.',
    rows=(
      *_rows('catch', 4_000_000, _CATCH),
      _row('population_sebulba', 'catch', 2_400_000, _CATCH, 'population-sebulba'),
    ),
  ),
  Task(
    name='population/cartpole',
    title='CartPole',
    about="gymnax's CartPole-v1.",
    rows=_rows('gymnax:CartPole-v1', 4_000_000, _CARTPOLE),
    thresholds=(475.0,),
  ),
)
