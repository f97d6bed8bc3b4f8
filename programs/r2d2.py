"""R2D2 as SEED RL runs it: server-held recurrent state, prioritized replay at a fixed ratio.

The graph is Sebulba's, with another agent and replay table.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.r2d2.config import R2D2Config
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options import short_runs
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.presets import R2D2_SMALL
from programs.options.prioritized import PrioritizedOptions
from programs.parts.agent_constructors import make_agent

placement = sebulba.placement
environments = sebulba.environments

# Options per family of environments; they override the defaults, and flags override them. Replay and the
# target network follow num_steps.
_SMALL = R2D2_SMALL | short_runs.rules(longest_period=100)
PRESETS = {
  # Acme's R2D2 (Hoffman et al. 2020) in burn-in, unroll, batch and target period; DQN's replay of a
  # million transitions.
  'atari': {
    'frame_stack': 4,
    'burn_in': 8,
    'unroll_length': 40,
    'batch_size': 32,
    'replay_size': 25_000,
    **short_runs.rules(longest_period=1_200),
    'num_steps': 10_000_000,
  },
  # For memory_len, whose cues are up to 100 steps old.
  'bsuite': _SMALL
  | {
    'envs_per_actor': 8,
    'forget_bias': 4.0,
    'unroll_length': 160,
    'batch_size': 8,
    'num_steps': 200_000,
  },
  # At a constant rate the return of a learned policy still goes up and down.
  'cartpole': _SMALL | {'learning_rate_schedule': 'linear'},
  'catch': _SMALL | {'num_steps': 100_000},
  # Wider, for the pixels of five games; num_steps is a fifth of Young and Tian's.
  'minatar': _SMALL | {'core_size': 128, 'head_size': 128, 'num_steps': 1_000_000},
  # An unroll and its burn-in are as long as the shortest delay, so the cue is in its stored state only.
  'recall': _SMALL | {'burn_in': 2, 'unroll_length': 8, 'num_steps': 200_000},
  OTHERS: _SMALL,
}
# Kapturowski et al. 2019, table 2, as in SEED RL's launch script; see `R2D2Config`. Their 256 and 610
# environments are up to the user's hosts.
NAMED_PRESETS = {
  'published': {
    'atari': {
      'frame_stack': 4,
      'core_size': 512,
      'head_size': 512,
      'burn_in': 40,
      'unroll_length': 80,
      'n_step': 5,
      'discount': 0.997,
      'rescale_epsilon': 1e-3,
      'learning_rate': 1e-4,
      'adam_eps': 1e-3,
      'max_gradient_norm': 80.0,
      'target_update_period': 2_500,
      'importance_exponent': 0.6,
      'priority_exponent': 0.9,
      'priority_eta': 0.9,
      'batch_size': 64,
      'replay_size': 100_000,
      'min_replay_size': 5_000,
      'samples_per_insert': 0.75,
      'env_options': 'sticky_actions=0,noop_max=30',
      'num_steps': 10_000_000_000,
    }
  }
}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig):
  """The options of an R2D2 run."""

  run: RunOptions = RunOptions(agent='r2d2')
  replay: PrioritizedOptions = PrioritizedOptions(batch_size=64)
  agent: Any = R2D2Config()


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('r2d2', config, make_agent(config))
