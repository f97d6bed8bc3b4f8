"""The members of a population and their leaderboard, and their placement."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from agents.population import space
from agents.population.space import Axis
from launchers.placement import Resources
from launchers.program import Program
from nodes.population.options import BoardOptions, Place, PopulationOptions
from programs.options import user_torso
from programs.options.common import CommonConfig
from programs.options.compiled_loop import CompiledLoopConfig
from programs.parts import default_placement
from programs.parts.agent_constructors import constructor
from programs.parts.launchpad_nodes import DataCourierNode, Deferred


def axes_of(config: CommonConfig, population: PopulationOptions) -> tuple[Axis, ...]:
  """Returns the options that a population tunes.

  Raises:
    ValueError: --tune does not fit the agent; one sentence.
  """
  return space.parse(population.tune, config.agent)


def check(config: CommonConfig, population: PopulationOptions) -> None:
  """Raises ValueError, one sentence, unless the members have steps to do and options to tune."""
  members = population.num_members
  if config.run.num_steps < members:
    raise ValueError(
      f'--num_steps={config.run.num_steps} leaves some of --num_members={members} nothing to do; raise '
      'it.'
    )
  names = [axis.name for axis in axes_of(config, population)]
  if 'discount' in names and getattr(config.agent, 'normalize_rewards', False):
    raise ValueError(
      '--tune=discount does not go with --normalize_rewards, which acts with one discount; leave one of '
      'them out.'
    )


def add_leaderboard(
  program: Program,
  config: CommonConfig,
  population: PopulationOptions,
  monitor: Any,
  call_timeout: float,
) -> Any:
  """Adds the leaderboard.

  Args:
    program: the graph.
    config: the program's options.
    population: of its members.
    monitor: a handle on the monitor.
    call_timeout: deadline of a call in seconds.

  Returns:
    A handle on the leaderboard.
  """
  seed = config.root_seed.child('leaderboard')
  options = BoardOptions(population, axes_of(config, population), seed, config.run.run_dir)
  handle = program.add_node(
    DataCourierNode(Deferred('nodes.leaderboard', 'Leaderboard'), options, monitor),
    label='leaderboard',
    roles=['leaderboard'],
    receives={'scores': 'learner'},
    sends={'offspring': 'learner', 'parameters': 'evaluator'},
  )
  handle.set_client_kwargs(call_timeout=call_timeout)
  return handle


def add_members(
  program: Program,
  config: CompiledLoopConfig,
  population: PopulationOptions,
  make_environment: Any,
  monitor: Any,
  leaderboard: Any,
) -> None:
  """Adds the members, each with values of its own for the options that are tuned.

  Args:
    program: the graph.
    config: the program's options.
    population: of the members.
    make_environment: builds one environment, written in JAX.
    monitor: a handle on the monitor.
    leaderboard: a handle on the leaderboard.
  """
  agent = constructor(config), user_torso.carried(config).agent
  axes = axes_of(config, population)
  rng = np.random.default_rng(config.root_seed.child('values').number())
  values = space.spread(axes, population.num_members, rng)
  with program.group('member', roles=['actor', 'learner']):
    for k in range(population.num_members):
      seed = config.root_seed.child('member', k) if k else config.root_seed.child('anakin')
      run = dataclasses.replace(config.run, num_steps=population.steps_of(k, config.run.num_steps))
      program.add_node(
        DataCourierNode(
          Deferred('nodes.anakin', 'Anakin'),
          functools.partial(Deferred('agents.tuned', 'Tuned'), *agent, values[k]),
          make_environment,
          monitor,
          config.loop,
          run,
          seed=seed,
          rings=config.rings,
          name=f'member/{k}',
          member=Place(k, population.ready_steps, leaderboard),
        )
      )


def placement(config: CompiledLoopConfig) -> dict[str, Resources]:
  """Returns the resources of the members, an accelerator host each, and of the leaderboard."""
  devices = config.loop.num_devices
  return {
    'member': default_placement.on_accelerator(config, devices, restart='on_failure'),
    'leaderboard': Resources(restart='on_failure'),
  }
