"""R2D2 as SEED RL runs it: server-held recurrent state, prioritized replay at a fixed ratio.

The graph is Sebulba's, with another agent and replay table.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.options import option
from agents.r2d2.config import R2D2Config
from programs import sebulba
from programs.options.actors import BATCH_SIZE_HELP
from programs.options.configs import OTHERS
from programs.options.inference import InferenceConfig
from programs.options.prioritized import PrioritizedConfig
from programs.parts.launchpad_nodes import Deferred
from programs.parts.replay import make_prioritized

placement = sebulba.placement
environments = sebulba.environments

# Options per family of environments. The published ones, which are the defaults, are for Atari on
# hundreds of actors. Flags override both.
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
  # Acme's R2D2 (Hoffman et al. 2020), for runs a thousand times shorter than the published ones. Acme
  # puts each step in two unrolls, sampled once each; here each step is in one unroll, sampled twice.
  'atari': {
    'frame_stack': 4,
    'burn_in': 8,
    'unroll_length': 40,
    'batch_size': 32,
    'target_update_period': 1_200,
    'replay_size': 25_000,
    'min_replay_size': 2_500,
    'samples_per_insert': 2.0,
    'num_steps': 10_000_000,
  },
  'catch': _SMALL | {'num_steps': 100_000},
  'cartpole': _SMALL,
  # An unroll and its burn-in are as long as the shortest delay, so the cue is in its stored state only.
  'recall': _SMALL | {'burn_in': 2, 'unroll_length': 8, 'num_steps': 200_000},
  'bsuite': _SMALL | {'unroll_length': 40, 'num_steps': 200_000},
  OTHERS: _SMALL,
}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig, PrioritizedConfig, R2D2Config):
  """The options of an R2D2 run."""

  batch_size: int = option(64, BATCH_SIZE_HELP)


def make_agent(config: Config) -> Any:
  """Returns the agent's constructor: it takes the specs of observations and actions."""
  return functools.partial(Deferred('agents.r2d2.agent', 'R2D2'), config)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph(
    'r2d2', config, make_agent(config), make_prioritized(config), config.replay_checkpoint_period
  )
