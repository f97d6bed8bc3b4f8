"""The constructors of the agents of programs."""

from __future__ import annotations

import functools
from typing import Any

from programs.options import user_agent, user_torso
from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import Deferred

_CLASSES = {
  'evolution': 'Evolution',
  'avril': 'AVRIL',
  'bc': 'BC',
  'intrinsic_rewards': 'IntrinsicRewards',
  'muzero': 'MuZero',
  'ppo': 'PPO',
  'pqn': 'PQN',
  'qt_opt': 'QTOpt',
  'r2d2': 'R2D2',
  'sac': 'SAC',
  'vtrace': 'VTrace',
}


def make_agent(config: CommonConfig) -> Any:
  """Returns the constructor of the agent of a config: it takes the specs of observations and actions.

  It is valid in every process, even without the files of the user's own agent and torso.
  """
  return functools.partial(constructor(config), user_torso.carried(config).agent)


def constructor(config: CommonConfig) -> Any:
  """Returns what `make_agent` gives the agent's options to, before the specs."""
  if own := user_agent.named(config):
    return functools.partial(user_agent.make, user_agent.read(own))
  name = config.run.agent
  return Deferred(f'agents.{name}.agent', _CLASSES[name])
