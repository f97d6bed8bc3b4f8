"""Sebulba's graph with an agent that computes nothing; `benchmarks.host` and `.replicas` launch it."""

from __future__ import annotations

import dataclasses
import functools
import os
from typing import Any

import launchpad as lp

from agents.options import option
from nodes.inference.options import GroupedActingOptions, InferenceOptions
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options.queue import QueueOptions
from programs.parts.launchpad_nodes import Deferred

PROGRAM = f'{os.path.abspath(__file__)}:make_program'
SCREENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'screens.py:make')
placement = sebulba.placement


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  """The options of Sebulba, and the seconds of the computation."""

  run: RunOptions = dataclasses.replace(sebulba.Config.run, env=SCREENS)
  acting: GroupedActingOptions = GroupedActingOptions(envs_per_actor=512)
  # As with an accelerator: one thread listens while another serves, and no core is shared.
  inference: InferenceOptions = InferenceOptions(
    inference_batch_size=512, inference_threads=2, one_core=False
  )
  replay: QueueOptions = QueueOptions(batch_size=64)
  inference_ms: float = option(1.0, 'milliseconds of an inference batch of any size')
  update_ms: float = option(10.0, 'milliseconds of a learner step')
  num_params: int = option(1, 'parameters, whose float32 gradient replicas sum in each update')


def make_agent(config: Config) -> Any:
  """Returns the constructor of the agent."""
  seconds = config.inference_ms / 1e3, config.update_ms / 1e3
  return functools.partial(
    Deferred('benchmarks.simulated.agent', 'Simulated'),
    config.agent.unroll_length,
    *seconds,
    config.num_params,
  )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('simulated', config, make_agent(config))
