"""Sebulba's graph with an agent that computes nothing; `benchmarks.host` launches it."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import launchpad as lp

from agents.options import option, with_default
from programs import sebulba
from programs.parts.launchpad_nodes import Deferred
from programs.parts.replay import make_queue

PROGRAM = f'{os.path.abspath(__file__)}:make_program'
SCREENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'screens.py:make')
placement = sebulba.placement


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  """The options of Sebulba, and the seconds of the computation."""

  env: str = with_default(sebulba.Config, 'env', SCREENS)
  envs_per_actor: int = with_default(sebulba.Config, 'envs_per_actor', 512)
  inference_batch_size: int = with_default(sebulba.Config, 'inference_batch_size', 512)
  batch_size: int = with_default(sebulba.Config, 'batch_size', 64)
  # As with an accelerator: one thread listens while another serves, and no core is shared.
  inference_threads: int = with_default(sebulba.Config, 'inference_threads', 2)
  one_core: bool = with_default(sebulba.Config, 'one_core', False)
  inference_ms: float = option(1.0, 'milliseconds of an inference batch of any size')
  update_ms: float = option(10.0, 'milliseconds of a learner step')


def make_agent(config: Config) -> Any:
  """Returns the constructor of the agent."""
  seconds = config.inference_ms / 1e3, config.update_ms / 1e3
  return functools.partial(
    Deferred('benchmarks.simulated.agent', 'Simulated'), config.unroll_length, *seconds
  )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('simulated', config, make_agent(config), make_queue(config))
