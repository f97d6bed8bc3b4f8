"""Lifetimes of many episodes."""

from __future__ import annotations

from benchmarks.results.declared import Launch, Task
from benchmarks.results.rows import systems


def _random_abc(label: str, *flags: str) -> Launch:
  """Returns a row of learned intrinsic rewards, of an ablation or of a baseline."""
  env, seeds = 'lifetime:random_abc', (1, 2, 3, 4, 5)
  return systems.ours('intrinsic_rewards', env, 5_000_000, *flags, label=label, seeds=seeds)


def _empty_rooms(label: str, steps: int, *flags: str) -> Launch:
  """Returns a row of learned intrinsic rewards or of a baseline, which keeps nothing of a lifetime."""
  return systems.ours('intrinsic_rewards', 'lifetime:empty_rooms', steps, *flags, label=label)


TASKS = (
  Task(
    name='random-abc',
    title='Random ABC',
    about=(
      'Lifetimes of 50 choices between three objects (Zheng et al. 2020). Every row is '
      '`intrinsic_rewards`. `gru-lifetime` is the method. `gru-episode` maximises the return of the '
      'inner episode. The learned reward of `feed-forward` has no memory, and that of '
      '`feed-forward-blind` does not see the extrinsic reward either. `extrinsic` and '
      '`count` learn no reward. All inner policies have step size 1, except for `extrinsic-tuned`.'
    ),
    rows=(
      _random_abc('gru-lifetime'),
      _random_abc('gru-episode', '--outer_objective=episode'),
      _random_abc('feed-forward', '--reward_memory=none'),
      _random_abc('feed-forward-blind', '--reward_memory=none', '--noreward_sees_extrinsic'),
      _random_abc('extrinsic', '--inner_reward=extrinsic'),
      _random_abc('count', '--inner_reward=count'),
      _random_abc('extrinsic-tuned', '--inner_reward=extrinsic', '--inner_learning_rate=4'),
    ),
    episodes=1000,
  ),
  Task(
    name='empty-rooms',
    title='Empty Rooms',
    about=(
      'Lifetimes of 400 steps in a room whose goal is hidden (Zheng et al. 2020). Every row is '
      '`intrinsic_rewards`. All inner policies have step size 1, except for `extrinsic-tuned`. Only '
      '`gru-lifetime` learns across lifetimes, so the others have fewer steps.'
    ),
    rows=(
      _empty_rooms('gru-lifetime', 5_000_000),
      _empty_rooms('extrinsic', 1_000_000, '--inner_reward=extrinsic'),
      _empty_rooms('count', 1_000_000, '--inner_reward=count'),
      _empty_rooms(
        'extrinsic-tuned', 1_000_000, '--inner_reward=extrinsic', '--inner_learning_rate=10'
      ),
    ),
    episodes=4000,
  ),
)
