"""Peers that mix their parameters, beside one learner with as many environments."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.declared import Group, Launch, Task
from benchmarks.results.rows import systems

_ENVS_OF_A_PEER = 16
_CATCH_STEPS = 300_000
_CATCH_SEEDS = (1, 2, 3, 4, 5)
_BREAKOUT_STEPS = 3_000_000
_BREAKOUT_SEEDS = (1, 2, 3)
_PUBLISHED_RATE = '--learning_rate=0.0014'


def _gala(
  env: str, budget: int, peers: Sequence[int], *flags: str, seeds: tuple[int, ...]
) -> list[Launch]:
  """Returns a row for each number of peers, and one of A2C for each number above 1."""

  def row(label: str, *sizes: str) -> Launch:
    return systems.ours('gala', env, budget, *sizes, *flags, label=label, seeds=seeds)

  gala = [row(f'gala-{n}', f'--num_peers={n}') for n in peers]
  a2c = [
    row(f'a2c-{n}', '--num_peers=1', f'--num_envs={n * _ENVS_OF_A_PEER}') for n in peers if n > 1
  ]
  return gala + a2c


def _catch(name: str, title: str, learning_rate: str) -> Task:
  """Returns Catch with one learning rate for all rows."""
  rate = f'--learning_rate={learning_rate}'
  return Task(
    name=f'gala/{name}',
    title=title,
    about=f'All rows have the learning rate {learning_rate}. `impala` has its own other options.',
    rows=(
      *_gala('catch', _CATCH_STEPS, (1, 2, 4, 8), rate, seeds=_CATCH_SEEDS),
      systems.ours('impala', 'catch', _CATCH_STEPS, rate, seeds=_CATCH_SEEDS),
    ),
    thresholds=(0.95,),
    missed=(
      'Runs of four and eight peers end before their second evaluation, and some of them below the '
      'threshold.'
    ),
  )


GROUPS = (
  Group(
    name='gala',
    title='GALA',
    about=(
      'Peers that mix their parameters (Assran et al. 2019). `gala-N` is N peers with 16 environments '
      'each, on a ring. `a2c-N` is one learner with as many environments, and `gala-1` is A2C too. The '
      'steps of all peers together count.'
    ),
  ),
)

TASKS = (
  _catch('catch', 'Catch', '0.0007'),
  _catch('catch-fast', 'Catch, twice the learning rate', '0.0014'),
  Task(
    name='gala/breakout',
    title='Breakout',
    about="All rows play `minatar:Breakout` with GALA's default learning rate, 0.0007.",
    rows=tuple(_gala('minatar:Breakout', _BREAKOUT_STEPS, (1, 4), seeds=_BREAKOUT_SEEDS)),
    thresholds=(5.0, 15.0),
  ),
  Task(
    name='gala/breakout-fast',
    title='Breakout, twice the learning rate',
    about=(
      'All rows have the learning rate 0.0014, that of the published runs of four peers. In a round of '
      '`gala-4-blocking` every peer waits for the parameters that its neighbour has at that round.'
    ),
    rows=(
      *_gala('minatar:Breakout', _BREAKOUT_STEPS, (1, 4), _PUBLISHED_RATE, seeds=_BREAKOUT_SEEDS),
      systems.ours(
        'gala',
        'minatar:Breakout',
        _BREAKOUT_STEPS,
        '--num_peers=4',
        '--gossip=blocking',
        _PUBLISHED_RATE,
        label='gala-4-blocking',
        seeds=_BREAKOUT_SEEDS,
      ),
    ),
    thresholds=(5.0, 15.0),
    missed=(
      'Four peers end hardly higher than with half of the rate, and lower than one learner with as many '
      'environments and updates. Peers that wait for each other (`gala-4-blocking`) lie between the '
      'two, with overlapping ranges, so parameters of different ages explain a part at most. What the '
      'mean of parameters itself costs was not separated.'
    ),
  ),
)
