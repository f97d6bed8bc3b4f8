"""Estimates from a run's options: updates, target copies, and the actor_steps until replay is filled.

The estimates count every row as one actor_step, although LAST rows are not steps. Short episodes
therefore give more updates than estimated: a tenth more on Catch, at most twice as many.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from agents.optimizer_config import MOST_STEPS
from nodes.unrolls.table_names import UNROLLS
from programs.options.actors import ActorsConfig
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.compiled_replay import CompiledReplayConfig
from programs.options.prioritized import PrioritizedConfig
from programs.options.queue import QueueConfig

FEW_UPDATES = 500
FEW_COPIES = 10
LONG_WARMUP = 0.5  # Fraction of num_steps.
_WITH_REPLAY = PrioritizedConfig, CompiledReplayConfig
_HARDLY_MOVES = 1e-6  # Upper bound on the mean square, over parameters, of a mean-loss gradient.


@dataclasses.dataclass(frozen=True)
class Estimates:
  """Estimates for a run of num_steps.

  Attributes:
    updates: approximate number of learner steps; of each learner in a run with several independent ones.
    gradient_steps: gradient steps in each of them.
    most_updates: upper bound on the learner steps, which the learner does if it runs as far ahead of
      the inserted unrolls as the ratio of samples to inserts allows.
    first_batch: actor_steps until learning can start.
    copies: target network copies; None for agents without a target network.
  """

  updates: int
  gradient_steps: int
  most_updates: int
  first_batch: int
  copies: int | None


def expected(config: Any) -> Estimates | None:
  """Returns the estimates for these options; None if the config has no known replay or loop options.

  Rules of presets ask before the options are validated, so they may not fit together.
  """
  unroll_length = getattr(config, 'unroll_length', None)
  if unroll_length is None:
    return None
  if isinstance(config, CompiledLoopConfig):
    batch = config.num_envs * unroll_length * config.num_loops
    each = config.updates_per_unroll
    rows_per_call = batch * (config.updates_per_call // each)
    calls = math.ceil(config.num_steps / max(rows_per_call, 1))
    filling = _unrolls_until_learning(config)
    updates = most = max(0, calls * config.updates_per_call - (filling - 1) * each)
    first = batch * filling
  elif isinstance(config, PrioritizedConfig):
    first = _steps_until(config, config.min_replay_size)
    # Each table's rate limiter keeps its samples within samples_per_insert_error of
    # samples_per_insert * (inserts - min_size).
    inserts = unrolls(config, config.num_steps)
    samples = config.samples_per_insert * (inserts - config.min_replay_size)
    error = config.samples_per_insert_error * config.num_replay_shards
    updates = max(0, int(samples / config.batch_size))
    most = max(0, int((samples + error) / config.batch_size)) if first <= config.num_steps else 0
  elif isinstance(config, QueueConfig):
    new = sum(part.unrolls for part in config.batch_parts if part.table == UNROLLS)
    first = _steps_until(config, new)
    updates = most = unrolls(config, config.num_steps) // max(new, 1)
  else:
    return None
  period = getattr(config, 'target_update_period', None)
  copies = None if period is None else updates // period
  each = getattr(config, 'gradient_steps_per_update', 1)
  return Estimates(updates, each, most, first, copies)


def with_decay(config: Any) -> Any:
  """Returns the config with every number of steps of a decay as long as the run where it is unset."""
  decays = {'temperature_decay_steps'}
  if getattr(config, 'learning_rate_schedule', 'constant') != 'constant':
    decays.add('learning_rate_decay_steps')
  unset = [name for name in decays if getattr(config, name, None) == 0]
  run = expected(config) if unset else None
  if run is None:
    return config
  steps = min(max(1, run.updates), MOST_STEPS // run.gradient_steps)
  return dataclasses.replace(config, **dict.fromkeys(unset, steps))


def describe(config: Any) -> str:
  """Returns the estimates as one line; '' if the config has no known replay or loop options."""
  run = expected(config)
  if run is None:
    return ''
  of = f' of {run.gradient_steps} gradient steps' if run.gradient_steps > 1 else ''
  of += ' of each peer' if getattr(config, 'num_loops', 1) > 1 else ''
  parts = [f'about {run.updates:,} updates{of}']
  if run.copies is not None:
    parts.append(f'{run.copies:,} target copies')
  share = run.first_batch / config.num_steps
  parts.append(f'learning starts after {run.first_batch:,} actor_steps ({share:.1%})')
  return ', '.join(parts)


def check(config: Any) -> None:
  """Checks that the run can do at least one update and, if it has a target network, one copy.

  Raises:
    ValueError: one sentence that names the flag and the fix, if the run would do no update or the
      target network would keep its initial parameters.
  """
  run = expected(config)
  if run is None:
    return
  if run.first_batch > config.num_steps and isinstance(config, _WITH_REPLAY):
    raise ValueError(
      f'--num_steps={config.num_steps} ends before replay holds --min_replay_size='
      f'{config.min_replay_size} unrolls, after about {run.first_batch} actor_steps, so nothing would '
      'be learned; raise --num_steps or lower --min_replay_size.'
    )
  if run.first_batch > config.num_steps and isinstance(config, QueueConfig):
    raise ValueError(
      f'--num_steps={config.num_steps} ends before the first batch of --batch_size='
      f'{config.batch_size} unrolls, after about {run.first_batch} actor_steps, so nothing would be '
      'learned; raise --num_steps or lower --batch_size.'
    )
  if run.copies is not None and run.most_updates < config.target_update_period:
    raise ValueError(
      f'--target_update_period={config.target_update_period} is more than the {run.most_updates} '
      f'updates of --num_steps={config.num_steps}, so the target network would never be updated; '
      'lower --target_update_period or raise --num_steps.'
    )


def warnings(config: Any) -> list[str]:
  """Returns reasons why the run may learn little, each a sentence that names the flag and the fix."""
  run, found = expected(config), []
  if run is not None and run.updates * run.gradient_steps < FEW_UPDATES:
    batch = '--num_envs' if isinstance(config, CompiledLoopConfig) else '--batch_size'
    found.append(
      f'--num_steps={config.num_steps} is about {run.updates:,} updates, too few to learn much; raise '
      f'it, or lower {batch}.'
    )
  if run is not None and run.copies is not None and run.copies < FEW_COPIES:
    found.append(
      f'about {run.updates:,} updates, {run.copies} target copies: lower '
      f'--target_update_period={config.target_update_period}.'
    )
  if isinstance(config, _WITH_REPLAY) and run is not None:
    share = run.first_batch / config.num_steps
    if share > LONG_WARMUP:
      found.append(
        f'replay is filled after about {run.first_batch:,} of --num_steps={config.num_steps}: lower '
        f'--min_replay_size={config.min_replay_size}.'
      )
  if getattr(config, 'optimizer', '') == 'rmsprop':
    inside = config.rmsprop_eps_place == 'inside'
    sums = getattr(config, 'loss_reduction', 'mean') == 'sum'
    if not sums and config.rmsprop_eps > (_HARDLY_MOVES if inside else math.sqrt(_HARDLY_MOVES)):
      fix = 'add --loss_reduction=sum' if hasattr(config, 'loss_reduction') else 'lower it'
      found.append(
        f'--optimizer=rmsprop hardly moves on gradients of means, which are small compared with '
        f'--rmsprop_eps={config.rmsprop_eps}; {fix}.'
      )
  return found


def unrolls(config: Any, steps: int) -> int:
  """Returns the number of unrolls that a replica's actors finish in `steps` actor_steps of all replicas.

  Like `expected`, it takes options that may not fit together.
  """
  environments = _environments(config)
  rows = steps // (environments * _replicas(config))
  return environments * max(0, (rows - _rows(config)) // config.unroll_length + 1)


def _unrolls_until_learning(config: Any) -> int:
  """Returns the unrolls of each environment up to the first that is learned from."""
  if config.rings is None:
    return 1
  incomplete = math.ceil((_rows(config) - 1) / config.unroll_length) - 1
  return incomplete + config.rings.min_slots


def _environments(config: ActorsConfig) -> int:
  """Returns the training environments of a replica."""
  return config.num_actors * config.envs_per_actor


def _replicas(config: Any) -> int:
  return max(getattr(config, 'num_replicas', 1), getattr(config, 'num_peers', 1))


def _rows(config: Any) -> int:
  """Returns the number of rows in an unroll."""
  return getattr(config, 'unroll_rows', getattr(config, 'burn_in', 0) + config.unroll_length + 1)


def _steps_until(config: Any, unrolls: int) -> int:
  """Returns the actor_steps, summed over replicas, until each replica has `unrolls` unrolls."""
  environments = _environments(config)
  each = math.ceil(unrolls / environments)
  rows = _rows(config) + (each - 1) * config.unroll_length
  return rows * environments * _replicas(config)
