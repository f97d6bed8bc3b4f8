"""A program's agent, its compiled answers, and the time that compiled functions take."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax

from agents.agent import Agent
from agents.types import Nest, Timestep
from benchmarks import options
from programs import registry

Work = Callable[[], Any]


def make_agent(config: Any) -> tuple[Agent, Any]:
  """Returns the agent of the benchmark's program, and the spec of the config's environment."""
  module = registry.load(options.program())
  spec = module.environments.make_spec(config.run.env, config.run.env_options)
  return module.make_agent(config)(spec.observations, spec.actions), spec


def make_answer(agent: Agent, params: Nest, timestep: Timestep) -> Work:
  """Returns a compiled function that answers a batch of timesteps, fields `[B, ...]`."""
  batch = timestep.step_type.shape[0]
  return functools.partial(
    jax.jit(agent.act),
    params,
    agent.initial_core_state(batch),
    timestep,
    agent.exploration(batch),
    jax.random.split(jax.random.key(1), batch),
  )


def seconds_of(work: Work, seconds: float) -> float:
  """Returns the seconds of one call, from a timing of at least `seconds`."""
  calls, started = 0, time.perf_counter()
  while calls == 0 or time.perf_counter() - started < seconds:
    jax.block_until_ready(work())
    calls += 1
  return (time.perf_counter() - started) / calls
