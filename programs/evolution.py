"""Evolution strategies (Salimans et al. 2017): a gradient from the returns of perturbed policies.

evolver     --evaluate-->     worker x N
evaluator   --get_params-->   evolver
all nodes   --report-->       monitor

A generation perturbs the parameters by noise of opposite signs, twice for each seed. The evolver sends
parameters and seeds, and gets back a return for each policy: workers and evolver make the same noise.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.evolution.config import EvolutionConfig
from agents.seeding import Seed
from environments import either as environments
from environments import jax_registry
from launchers.placement import Resources
from launchers.program import Program
from nodes.evolution.options import WorkerOptions
from nodes.runtime.options import RunOptions
from programs.options.common import CommonConfig
from programs.options.preset_choice import OTHERS
from programs.options.presets import MUJOCO
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import DataCourierNode, Deferred

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc. Calls of the workers
# have none: the evolver gives a part that is late to another worker.
CALL_TIMEOUT = 30

# Episodes of a thousand steps: few of them in a generation, in large batches.
_MUJOCO = {
  'normalize_observations': True,
  'num_pairs': 16,
  'virtual_workers': 4,
  'sigma': 0.05,
  'num_steps': 1_000_000,
}
PRESETS: dict[str, Any] = {
  'catch': {'num_steps': 300_000},
  **{f'gymnasium:{task}-v5': _MUJOCO for task in MUJOCO},
  OTHERS: {'num_steps': 1_000_000},
}


@dataclasses.dataclass(frozen=True)
class Config(CommonConfig):
  """The options of a run of evolution strategies."""

  run: RunOptions = RunOptions(agent='evolution')
  workers: WorkerOptions = WorkerOptions()
  agent: Any = EvolutionConfig()

  @property
  def root_seed(self) -> Seed:
    """The root of all seeds. It ignores resumes: a resumed run equals the uninterrupted run."""
    return Seed(self.run.seed)

  @property
  def in_jax(self) -> bool:
    """Whether the environment is written in JAX."""
    return environments.of(self.run.env) is jax_registry

  def _check(self) -> None:
    pairs, parts = self.agent.num_pairs, self.workers.virtual_workers
    if pairs % parts:
      raise ValueError(
        f'--num_pairs={pairs} does not divide into --virtual_workers={parts}; make it a multiple.'
      )
    if (workers := self.workers.num_workers) > parts:
      raise ValueError(
        f'--num_workers={workers} is more than --virtual_workers={parts}, of which each '
        'plays one at a time; raise --virtual_workers.'
      )
    if self.run.accelerator != 'cpu':
      raise ValueError(
        f'--accelerator={self.run.accelerator} has no effect: the workers of evolution strategies play '
        'on CPUs; leave it out.'
      )
    if self.evaluation.video_period and self.in_jax:
      raise ValueError(
        f'--video_period={self.evaluation.video_period:g} is not for environments in JAX, which are '
        'inside a compiled function; leave it out, and record with evaluate.py --video.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  program = Program('evolution')
  parts = make_agent(config), environments.maker(config.run.env, config.run.env_options)
  episodes = Deferred('nodes.evolution.episodes', 'SteppedEpisodes')
  player = Deferred('nodes.evaluation.fetched', 'FetchingPlayer')
  if config.in_jax:
    episodes = Deferred('nodes.evolution.episodes', 'CompiledEpisodes')
    player = Deferred('nodes.evaluation.compiled', 'CompiledPlayer')
  make_episodes = functools.partial(episodes, *parts, config.workers.episode_steps)

  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  with program.group('worker', roles=['actor', 'inference']):
    workers = []
    for i in range(config.workers.num_workers):
      worker = Deferred('nodes.evolution_worker', 'EvolutionWorker')
      node = DataCourierNode(worker, make_episodes, monitor, f'worker/{i}')
      workers.append(program.add_node(node))
  evolver = program.add_node(
    DataCourierNode(
      Deferred('nodes.evolver', 'Evolver'),
      make_episodes,
      workers,
      monitor,
      config.workers,
      config.run,
      config.agent.num_pairs,
      config.root_seed.child('evolver'),
    ),
    label='evolver',
    roles=['learner'],
    sends={'parameters, seeds': 'actor'},
    receives={'returns': 'actor'},
  )
  evolver.set_client_kwargs(call_timeout=CALL_TIMEOUT)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    player,
    *parts,
    evolver,
    *([None] if config.in_jax else []),  # The frames of an evaluation are those of the evolver.
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group: all on CPUs."""
  return default_placement.placement(
    evolver=Resources(restart=default_placement.restart_of_learner(config)),
    worker=Resources(
      restart='on_failure', cpu_env=default_placement.ONE_THREAD, uses_run_dir=False
    ),
  )
