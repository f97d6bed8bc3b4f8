"""The members of a population and their leaderboard, and their placement."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agents.population import space
from agents.population.space import Axis
from launchers.placement import Resources
from launchers.program import Program
from nodes.population.options import BoardOptions, Place, PopulationOptions
from nodes.runtime.options import RunOptions
from programs.options import user_torso
from programs.options.common import CommonConfig
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.separate_learners import SeparateLearnersConfig
from programs.parts.agent_constructors import constructor
from programs.parts.central_inference import acting_roles, serving, threads_of_servers
from programs.parts.launchpad_nodes import (
  AddressHandle,
  DataCourierNode,
  Deferred,
  InferenceHandle,
  ListeningNode,
)
from programs.parts.learner import training_options

LEADERBOARD = Resources(restart='on_failure')


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
  if population.ready_steps > (part := config.run.num_steps // members):
    raise ValueError(
      f'--ready_steps={population.ready_steps} is more than the {part} steps of each of '
      f'--num_members={members}, so none would have a score; lower it, or raise --num_steps.'
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
  run = config.run
  options = BoardOptions(population, axes_of(config, population), run.num_steps, seed, run.run_dir)
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
  others = [config.root_seed.child('member', k) for k in range(1, population.num_members)]
  seeds = [config.root_seed.child('anakin'), *others]  # The first one's is Anakin's.
  with program.group('member', roles=['actor', 'learner']):
    for k, make_agent in enumerate(_agents(config, population)):
      first = population.pods_of(population.agent_of(k))[0]
      program.add_node(
        DataCourierNode(
          Deferred('nodes.anakin', 'Anakin'),
          make_agent,
          make_environment,
          monitor,
          config.loop,
          _run_of(config.run, population, k),
          seed=seeds[k],
          rings=config.rings,
          name=f'member/{k}',
          params_seed=None if k == first else seeds[first],
          member=Place(k, population.ready_steps, leaderboard),
        )
      )


def add_inference_members(
  program: Program,
  config: SeparateLearnersConfig,
  population: PopulationOptions,
  make_environment: Callable[..., Any],
  replay: Sequence[AddressHandle],
  monitor: Any,
  leaderboard: Any,
) -> list[Any]:
  """Adds members that are inference-learners, each with values of its own for the tuned options.

  Args:
    program: the graph.
    config: the program's options.
    population: of the members.
    make_environment: takes (number of environments, seed).
    replay: addresses of the replay servers, those of the first member first.
    monitor: a handle on the monitor.
    leaderboard: a handle on the leaderboard.

  Returns:
    A handle on each, for its actors.
  """
  shards, root = config.replay.num_replay_shards, config.root_seed.child('learner')
  members = []
  with program.group(
    'member',
    roles=acting_roles(config, 'learner'),
    sends={'unrolls': 'replay'},
    receives={'batches': 'replay'},
  ):
    for k, make_agent in enumerate(_agents(config, population)):
      training = dataclasses.replace(
        training_options(config, f'member/{k}'),
        run=_run_of(config.run, population, k),
        seed=root.child('agent', population.agent_of(k)),
        one_core=config.inference.one_core,
        learner=k + 1,  # The leaderboard has the place of learner 0.
      )
      node = ListeningNode(
        InferenceHandle('inference'),
        Deferred('nodes.learner', 'LearnerNode'),
        make_agent,
        make_environment,
        replay[k * shards : (k + 1) * shards],
        monitor,
        training,
        serving=serving(config, k, root.child('member', k), make_environment, evaluates=False),
        serves_params=False,
        member=Place(k, population.ready_steps, leaderboard),
      )
      node.threads = threads_of_servers(config)
      members.append(program.add_node(node))
  return members


def _agents(config: CommonConfig, population: PopulationOptions) -> list[Callable[..., Any]]:
  """Returns the constructor of each member's agent, with the values that it begins with."""
  agent = constructor(config), user_torso.carried(config).agent
  rng = np.random.default_rng(config.root_seed.child('values').number())
  values = space.spread(axes_of(config, population), population.num_agents, rng)
  make = Deferred('agents.tuned', 'Tuned')
  return [
    functools.partial(make, *agent, values[population.agent_of(k)])
    for k in range(population.num_members)
  ]


def _run_of(run: RunOptions, population: PopulationOptions, member: int) -> RunOptions:
  """Returns the options of a run with the part of num_steps that a member trains for."""
  return dataclasses.replace(run, num_steps=population.steps_of(member, run.num_steps))
