"""Pong."""

from __future__ import annotations

import dataclasses

from benchmarks.results.declared import Peer, Published, Task
from benchmarks.results.rows import quoted, systems

_SEEDS = (1, 2)  # A run takes more than an hour.
_STEPS = 6_000_000
_LONGER_STEPS = 8_000_000  # IMPALA does more steps in the same time.
_SEARCHED_STEPS = 1_500_000  # MuZero's, of an hour.
_PEER_STEPS = 1_500_000  # About what Sample Factory does in the time of IMPALA.
# What its package has for Atari (sf_examples/atari/atari_params.py). There 8 processes have one
# environment each; here 2 have four, for two cores.
_SAMPLE_FACTORY = {
  'worker_num_splits': 1,
  'train_for_env_steps': int(1.01 * _PEER_STEPS),  # It is stopped at the budget.
  'rollout': 128,
  'batch_size': 256,
  'num_batches_per_epoch': 4,
  'num_epochs': 4,
  'shuffle_minibatches': False,
  'recurrence': 1,
  'gamma': 0.99,
  'gae_lambda': 0.95,
  'ppo_clip_ratio': 0.1,
  'kl_loss_coeff': 0.0,
  'value_loss_coeff': 0.5,
  'exploration_loss_coeff': 0.01,
  'max_grad_norm': 0.5,
  'learning_rate': 2.5e-4,
  'lr_schedule': 'linear_decay',
  'adam_eps': 1e-5,
  'normalize_input': True,
  'normalize_returns': True,
  'async_rl': False,
}

TASKS = (
  Task(
    name='pong',
    title='Pong',
    about=(
      'The protocol of the returns is below; a step is 4 frames. Our rows have the preset of Pong: six '
      'actions, screens of 42x42 and learning settings found for it. Sample Factory has the six actions '
      'too, and the settings that its package has for Atari, with screens of 84x84. It leaves half of '
      'the machine idle, and most of its run was beside jobs of the lowest priority.'
    ),
    rows=(
      dataclasses.replace(systems.ppo('sebulba', 'atari:Pong', _STEPS), seeds=_SEEDS),
      dataclasses.replace(systems.ppo('impala', 'atari:Pong', _LONGER_STEPS), seeds=_SEEDS),
      systems.ours('muzero', 'atari:Pong', _SEARCHED_STEPS, seeds=(1,)),
      Peer(
        label='sample-factory-appo',
        peer='sample_factory',
        env='atari:Pong',
        budget=_PEER_STEPS,
        given={
          'num_actors': 2,
          'envs_per_actor': 4,
          'game': {'full_action_space': False},
          'options': _SAMPLE_FACTORY,
        },
        action_repeat=4,
        seeds=(1,),
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
      'The aim is 18 within two hours on two cores. Both seeds of `impala-ppo` have it. One seed of '
      '`sebulba-ppo` ends less than a point below it, the other learns more slowly and ends far below. '
      '`muzero` hardly ever scores after its hour, with a quarter of those steps or fewer. Sample '
      'Factory is still learning when its steps are over. PQN has no row: its steps are as slow here.'
    ),
  ),
)
