"""Learned intrinsic rewards: a meta-gradient through the lifetimes of policies, in Anakin's graph."""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp
from acme import specs

from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.lifetimes import LifetimeObservation
from launchers.placement import Resources
from nodes.learning.options import ReplicatedLoopOptions
from nodes.runtime.options import RunOptions
from programs import anakin
from programs.options import compiled_presets as presets
from programs.options.compiled_loop import CompiledLoopConfig
from programs.parts.agent_constructors import make_agent

environments = anakin.environments

PRESETS = presets.INTRINSIC_REWARDS


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig):
  """The options of a run that learns intrinsic rewards."""

  run: RunOptions = RunOptions(env='lifetime:random_abc', agent='intrinsic_rewards')
  loop: ReplicatedLoopOptions = ReplicatedLoopOptions()
  agent: Any = IntrinsicRewardsConfig()


def check_spec(env: str, spec: specs.EnvironmentSpec) -> None:
  """Checks that an environment has lifetimes.

  Args:
    env: its name.
    spec: its specs.

  Raises:
    ValueError: one sentence.
  """
  if not isinstance(spec.observations, LifetimeObservation):
    raise ValueError(
      f'--env={env} has no lifetimes, which --program=intrinsic_rewards needs: use lifetime:<task>, or '
      'an environment whose observation_spec is a LifetimeObservation.'
    )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return anakin.make_graph('intrinsic_rewards', config, make_agent(config))


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group."""
  return anakin.placement(config)
