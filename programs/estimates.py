"""Estimates from a run's options: updates, target copies, and the actor_steps until replay is filled.

The estimates count every row as one actor_step, although LAST rows are not steps. Short episodes
therefore give more updates than estimated: a tenth more on Catch, at most twice as many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from agents import options
from agents.optimizer_config import MOST_STEPS
from programs.options.common import CommonConfig

FEW_UPDATES = 500
FEW_COPIES = 10
LONG_WARMUP = 0.5  # Fraction of num_steps.
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


def expected(config: CommonConfig) -> Estimates | None:
  """Returns the estimates for these options; None if the config has no known replay or loop options.

  Rules of presets ask before the options are validated, so they may not fit together.
  """
  run = config.expected()
  if run is None:
    return None
  period = options.value(config, 'target_update_period', None)
  copies = None if period is None else run.updates // period
  each = config.agent.gradient_steps_per_update
  return Estimates(run.updates, each, run.most_updates, run.first_batch, copies)


def with_decay(config: Any, counts: Mapping[str, float] | None = None) -> Any:
  """Returns the config with every number of steps of a decay as long as the run where it is unset.

  Args:
    config: the options of the run.
    counts: the counters at which a run continues with updates of another size, as after a change of
      --num_replicas; None if all of its updates have the same size.
  """
  values, decays = options.flatten(config), {'temperature_decay_steps'}
  if values.get('learning_rate_schedule', 'constant') != 'constant':
    decays.add('learning_rate_decay_steps')
  unset = [name for name in decays if values.get(name) == 0]
  run = expected(config) if unset else None
  if run is None:
    return config
  updates = run.updates
  if counts is not None:
    left = max(0.0, 1.0 - counts['actor_steps'] / config.run.num_steps)
    updates = int(counts['learner_steps']) + round(updates * left)
  steps = min(max(1, updates), MOST_STEPS // run.gradient_steps)
  return options.replace(config, **dict.fromkeys(unset, steps))


def describe(config: Any) -> str:
  """Returns the estimates as one line; '' if the config has no known replay or loop options."""
  run = expected(config)
  if run is None:
    return ''
  of = f' of {run.gradient_steps} gradient steps' if run.gradient_steps > 1 else ''
  of += ' of each learner' if config.num_learners > 1 else ''
  parts = [f'about {run.updates:,} updates{of}']
  if run.copies is not None:
    parts.append(f'{run.copies:,} target copies')
  share = run.first_batch / config.run.num_steps
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
  config.check_start(run.first_batch)
  if run.copies is not None and run.most_updates < (period := config.agent.target_update_period):
    raise ValueError(
      f'--target_update_period={period} is more than the {run.most_updates} '
      f'updates of --num_steps={config.run.num_steps}, so the target network would never be updated; '
      'lower --target_update_period or raise --num_steps.'
    )


def warnings(config: Any) -> list[str]:
  """Returns reasons why the run may learn little, each a sentence that names the flag and the fix."""
  run, found = expected(config), []
  if run is not None and run.updates * run.gradient_steps < FEW_UPDATES:
    batch = '--num_envs' if options.value(config, 'num_envs', 0) else '--batch_size'
    found.append(
      f'--num_steps={config.run.num_steps} is about {run.updates:,} updates, too few to learn much; '
      f'raise it, or lower {batch}.'
    )
  if run is not None and run.copies is not None and run.copies < FEW_COPIES:
    found.append(
      f'about {run.updates:,} updates, {run.copies} target copies: lower '
      f'--target_update_period={config.agent.target_update_period}.'
    )
  least = options.value(config, 'min_replay_size', 0)
  if least and run is not None:
    share = run.first_batch / config.run.num_steps
    if share > LONG_WARMUP:
      found.append(
        f'replay is filled after about {run.first_batch:,} of --num_steps={config.run.num_steps}: lower '
        f'--min_replay_size={least}.'
      )
  if options.value(config, 'optimizer', '') == 'rmsprop':
    eps, inside = config.agent.rmsprop_eps, config.agent.rmsprop_eps_place == 'inside'
    reduction = options.value(config, 'loss_reduction', '')
    if reduction != 'sum' and eps > (_HARDLY_MOVES if inside else math.sqrt(_HARDLY_MOVES)):
      fix = 'add --loss_reduction=sum' if reduction else 'lower it'
      found.append(
        f'--optimizer=rmsprop hardly moves on gradients of means, which are small compared with '
        f'--rmsprop_eps={eps}; {fix}.'
      )
  return found
