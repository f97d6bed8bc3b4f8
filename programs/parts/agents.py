"""The constructors of the agents between which programs choose."""

from __future__ import annotations

import functools
from typing import Any

from agents.ppo.config import PPOConfig
from agents.vtrace.config import VTraceConfig
from programs.parts.launchpad_nodes import Deferred


def make_agent(config: VTraceConfig | PPOConfig) -> Any:
  """Returns the constructor of the agent of a config: it takes the specs of observations and actions."""
  name = ('ppo', 'PPO') if isinstance(config, PPOConfig) else ('vtrace', 'VTrace')
  return functools.partial(Deferred(f'agents.{name[0]}.agent', name[1]), config)
