"""The constructors of the agents of programs."""

from __future__ import annotations

import functools
from typing import Any

from programs.options import user_torso
from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import Deferred

_CLASSES = {
  'intrinsic_rewards': 'IntrinsicRewards',
  'muzero': 'MuZero',
  'ppo': 'PPO',
  'qt_opt': 'QTOpt',
  'r2d2': 'R2D2',
  'vtrace': 'VTrace',
}


def make_agent(config: CommonConfig) -> Any:
  """Returns the constructor of the agent of a config: it takes the specs of observations and actions.

  It is valid in every process, even without the file of the user's own torso.
  """
  name = config.run.agent
  make = Deferred(f'agents.{name}.agent', _CLASSES[name])
  return functools.partial(make, user_torso.carried(config).agent)
