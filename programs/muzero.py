"""MuZero: actions by a search in a learned model, prioritized replay at a fixed ratio.

The graph is Sebulba's, with another agent and replay table.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.muzero.config import MuZeroConfig
from agents.options import with_default
from programs import sebulba
from programs.options import presets
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.prioritized import PrioritizedConfig
from programs.parts.launchpad_nodes import Deferred
from programs.parts.replay import make_prioritized

placement = sebulba.placement
environments = sebulba.environments

# Options per family of environments; they override the defaults, and flags override them.
PRESETS = {
  'atari': presets.MUZERO_ATARI,
  'catch': presets.MUZERO_CATCH,
  'minatar': presets.MUZERO_MINATAR,
  OTHERS: presets.MUZERO_SMALL,
}
NAMED_PRESETS = {'published': {'atari': presets.MUZERO_PUBLISHED}}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig, PrioritizedConfig, MuZeroConfig):
  """The options of a MuZero run."""

  priority_exponent: float = with_default(PrioritizedConfig, 'priority_exponent', 1.0)

  def _check(self) -> None:
    parts = len(self.learner_devices) * self.updates_per_batch
    if self.batch_size % parts:
      raise ValueError(
        f'--batch_size={self.batch_size} does not divide into the {self.updates_per_batch} parts of '
        f'--updates_per_batch on each of {len(self.learner_devices)} learner device(s); make it a '
        f'multiple of {parts}.'
      )


def make_agent(config: Config) -> Any:
  """Returns the agent's constructor: it takes the specs of observations and actions."""
  return functools.partial(Deferred('agents.muzero.agent', 'MuZero'), config)


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph(
    'muzero', config, make_agent(config), make_prioritized(config), config.replay_checkpoint_period
  )
