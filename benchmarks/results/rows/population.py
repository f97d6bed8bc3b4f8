"""Populations from badly chosen ranges, beside a random search with equal steps."""

from __future__ import annotations

from benchmarks.results.declared import Group, Launch, Task
from benchmarks.results.rows import systems

# Each range has some values with which one learner learns, and many with which it does not.
_CATCH = '--tune=learning_rate=3e-6..3e-1,entropy_cost=1e-4..1'
_CARTPOLE = '--tune=learning_rate=1e-6..1,entropy_cost=1e-4..10'
_STEPS = 3_200_000  # Of eight members.


def _row(env: str, tune: str, *flags: str, label: str = '') -> Launch:
  return systems.ours('population', env, _STEPS, '--num_members=8', tune, *flags, label=label)


GROUPS = (
  Group(
    name='population',
    title='Populations',
    about=(
      'Eight members that begin with values spread over badly chosen ranges. All members together have '
      'the steps of the command. `random-search` is the same population, in which no member copies '
      'another. The return is that of the member with the best last score; the notes have the last '
      'scores of all members, mean training returns with exploration.'
    ),
  ),
)

TASKS = (
  Task(
    name='population/catch',
    title='Catch',
    about='All rows play Catch in JAX.',
    rows=(
      _row('catch', _CATCH),
      _row('catch', _CATCH, '--selection=tournament', label='population-tournament'),
      _row('catch', _CATCH, '--selection=none', label='random-search'),
    ),
  ),
  Task(
    name='population/cartpole',
    title='CartPole',
    about="All rows play gymnax's CartPole-v1.",
    rows=(
      _row('gymnax:CartPole-v1', _CARTPOLE),
      _row('gymnax:CartPole-v1', _CARTPOLE, '--selection=none', label='random-search'),
    ),
    thresholds=(475.0,),
  ),
)
