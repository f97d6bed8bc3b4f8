"""The constructors of the agents between which programs choose."""

from __future__ import annotations

import functools
from typing import Any

from programs.options import user_torso
from programs.options.common import CommonConfig
from programs.parts.launchpad_nodes import Deferred

_CLASSES = {'muzero': 'MuZero', 'ppo': 'PPO', 'r2d2': 'R2D2', 'vtrace': 'VTrace'}


def make_agent(config: CommonConfig) -> Any:
  """Returns the constructor of the agent of a config: it takes the specs of observations and actions."""
  return constructor(f'agents.{config.run.agent}.agent', _CLASSES[config.run.agent], config)


def constructor(module: str, name: str, config: Any) -> Any:
  """Returns a constructor that is valid in every process, even without the user's own torso.

  Args:
    module: of the agent's class.
    name: of the class, whose constructor takes `config.agent` and the specs of observations and actions.
    config: of the program.
  """
  return functools.partial(Deferred(module, name), user_torso.carried(config).agent)
