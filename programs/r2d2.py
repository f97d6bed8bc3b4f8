"""R2D2 as SEED RL runs it: server-held recurrent state, prioritized replay at a fixed ratio."""

from __future__ import annotations

import dataclasses
import functools

import launchpad as lp

from agents.options import option
from agents.r2d2.config import R2D2Config
from programs import actor_learner
from programs.config import BATCH_SIZE_HELP, RunConfig
from programs.deferred import Deferred

placement = actor_learner.placement
environments = actor_learner.environments

# Options that suit a family of environments better than the published ones, which are for Atari;
# flags override them.
_SMALL = {
  'lstm_size': 64,
  'head_size': 64,
  'burn_in': 8,
  'unroll_length': 20,
  'n_step': 3,
  'discount': 0.99,
  'learning_rate': 1e-3,
  'target_update_period': 100,
  'batch_size': 32,
  'replay_size': 5_000,
  'min_replay_size': 100,
  'samples_per_insert': 8.0,
}
PRESETS = {
  'atari': {'frame_stack': 4, 'num_steps': 10_000_000},
  'catch': _SMALL | {'num_steps': 100_000},
  'cartpole': _SMALL,
  'bsuite': _SMALL | {'unroll_length': 40, 'num_steps': 200_000},
}


@dataclasses.dataclass(frozen=True)
class Config(RunConfig, R2D2Config):
  """Everything an R2D2 run can be told."""

  batch_size: int = option(64, BATCH_SIZE_HELP)
  replay_size: int = option(100_000, 'unrolls that the replay of a replica holds, over its shards')
  min_replay_size: int = option(
    5_000, 'unrolls in the replay of a replica before learning starts, over its shards'
  )
  samples_per_insert: float = option(
    0.75, "how often an unroll is sampled on average; SEED's script: 0.75, its default: 1.5"
  )
  samples_per_insert_error: float = option(
    0.0,
    'samples by which that ratio may be off before actors or learner wait, per shard; '
    '0: a tenth of min_replay_size times samples_per_insert, at least twice a batch',
  )
  replay_checkpoint_period: float = option(
    600.0, 'seconds between checkpoints of replay, which stands still meanwhile; 0: none'
  )
  priority_exponent: float = option(
    0.9, 'an unroll is sampled in proportion to its priority to this power'
  )

  def resolve(self) -> Config:
    """Returns the config with every 'choose for me' replaced by the choice."""
    config = super().resolve()
    shards = self.num_replay_shards
    tenth = 0.1 * self.samples_per_insert * self.min_replay_size / max(shards, 1)
    least = 2.0 * max(self.batch_size / max(shards, 1), 1.0, self.samples_per_insert)
    return dataclasses.replace(
      config, samples_per_insert_error=self.samples_per_insert_error or max(tenth, least)
    )

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    RunConfig.validate(self)
    R2D2Config.validate(self)
    shards = self.num_replay_shards
    if self.samples_per_insert <= 0:
      raise ValueError(f'--samples_per_insert={self.samples_per_insert} must be above 0.')
    if self.replay_checkpoint_period < 0:
      raise ValueError(
        f'--replay_checkpoint_period={self.replay_checkpoint_period} must not be negative.'
      )
    if self.priority_exponent < 0:
      raise ValueError(f'--priority_exponent={self.priority_exponent} must not be negative.')
    if self.min_replay_size < shards:
      raise ValueError(
        f'--min_replay_size={self.min_replay_size} is below 1 for each of the {shards} shards of '
        '--num_replay_shards; make it larger.'
      )
    if self.replay_size < self.min_replay_size:
      raise ValueError(
        f'--replay_size={self.replay_size} is smaller than --min_replay_size='
        f'{self.min_replay_size}: learning would never start; make it at least as large.'
      )
    least = max(1.0, self.samples_per_insert)
    if self.samples_per_insert_error < least:
      raise ValueError(
        f'--samples_per_insert_error={self.samples_per_insert_error} is below {least}, the larger '
        'of 1 and --samples_per_insert: actors and learner could wait for each other for ever; '
        'make it larger, or 0 to have it chosen.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  shards = config.num_replay_shards
  return actor_learner.make_program(
    'r2d2',
    config,
    functools.partial(Deferred('agents.r2d2.agent', 'R2D2'), config),
    functools.partial(
      Deferred('nodes.replay', 'prioritized_table'),
      max_size=config.replay_size // shards,
      min_size=config.min_replay_size // shards,
      samples_per_insert=config.samples_per_insert,
      error_buffer=config.samples_per_insert_error,
      priority_exponent=config.priority_exponent,
    ),
    config.replay_checkpoint_period,
  )
