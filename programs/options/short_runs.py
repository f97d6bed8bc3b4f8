"""R2D2's replay and target network in short runs.

R2D2's published values are for billions of actor_steps. These rules fit them to a run's own num_steps.
"""

from __future__ import annotations

import functools
from typing import Any

from programs import estimates
from programs.options.rule import Rule

WARMUP = 0.05  # The largest fraction of num_steps in which replay is filled.
COPIES = 50  # The fewest target copies of a run with as many updates.
_SHORT_RUN = 1_000_000
_MOST_SAMPLES = 8.0  # DQN's: 32 transitions in an update, every 4 steps.
_FEWEST_SAMPLES = 0.8  # R2D2's.


def _min_replay_size(config: Any) -> int:
  replay = config.replay
  filled = config.playing.unrolls(int(WARMUP * config.run.num_steps))
  size = max(replay.batch_size, min(filled, replay.replay_size // 10))
  return max(replay.num_replay_shards, min(size, replay.replay_size))


def _samples_per_insert(config: Any) -> float:
  # The fourth root leads from DQN's 8 at a million steps to R2D2's 0.8 at ten thousand times as many.
  samples = _MOST_SAMPLES * (_SHORT_RUN / config.run.num_steps) ** 0.25
  return round(min(max(samples, _FEWEST_SAMPLES), _MOST_SAMPLES), 1)


def _target_update_period(longest: int, config: Any) -> int:
  run = estimates.expected(config)
  updates = 0 if run is None else run.updates
  return max(1, min(updates // COPIES, longest))


def rules(longest_period: int) -> dict[str, Rule]:
  """Returns the rules, in the order of computation: each sees the values of those before it.

  Args:
    longest_period: the most updates between target copies.
  """
  period = functools.partial(_target_update_period, longest_period)
  return {
    'min_replay_size': Rule(
      'unrolls in 5% of num_steps, from a batch to replay_size / 10', _min_replay_size
    ),
    'samples_per_insert': Rule('8 (1000000 / num_steps)^(1/4), from 0.8 to 8', _samples_per_insert),
    'target_update_period': Rule(f'updates / {COPIES}, at most {longest_period}', period),
  }
