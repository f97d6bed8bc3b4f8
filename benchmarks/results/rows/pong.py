"""Pong."""

from __future__ import annotations

from benchmarks.results.declared import Peer, Published, Task
from benchmarks.results.rows import quoted, systems

_STEPS = 6_000_000
_LONGER_STEPS = 8_000_000  # IMPALA does more steps in the same time.
_SEARCHED_STEPS = 1_500_000  # MuZero's, of an hour.

TASKS = (
  Task(
    name='pong',
    title='Pong',
    about=(
      'The protocol of the returns is below; a step is 4 frames. Our rows have the preset of Pong: six '
      'actions, screens of 42x42 and learning settings found for it. Sample Factory has the settings of '
      '`benchmarks.peers`: 18 actions, screens of 84x84.'
    ),
    rows=(
      systems.ppo('sebulba', 'atari:Pong', _STEPS),
      systems.ppo('impala', 'atari:Pong', _LONGER_STEPS),
      systems.ours('muzero', 'atari:Pong', _SEARCHED_STEPS),
      Peer(
        label='sample-factory-appo',
        peer='sample_factory',
        env='atari:Pong',
        budget=_STEPS,
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
      quoted.cleanrl('20.36 ± 0.20', f'PongNoFrameskip-v4, 10,000,000 steps, {quoted.SEEDS}'),
    ),
    episodes=30,
    missed=(
      'The aim is 18 within two hours on two cores. One seed of `sebulba-ppo` ends less than a point '
      'below it, the other learns more slowly and ends far below. '
      '`muzero` returns the ball after its hour and rarely scores.'
    ),
  ),
)
