"""Sebulba: actors on CPU workers, inference and V-trace learner together on the accelerator host.

actor x N  --step-->  inference_learner  --unrolls-->  replay (queue)
                             ^------------batches----------'
evaluator  --step-->  inference_learner        everybody  --report-->  monitor
"""

from __future__ import annotations

import dataclasses
import functools

import launchpad as lp

from agents.vtrace.config import VTraceConfig
from environments import registry
from launchers.placement import Resources
from nodes.streams import layout
from programs.config import RunConfig
from programs.deferred import Deferred
from programs.replay_node import ReplayNode


@dataclasses.dataclass(frozen=True)
class Config(RunConfig, VTraceConfig):
  """Everything a Sebulba run can be told."""

  def validate(self) -> None:
    """Checks run and agent options; raises ValueError."""
    RunConfig.validate(self)
    VTraceConfig.validate(self)


# Options that suit a family of environments better than the defaults; flags override them.
PRESETS = {
  # Espeholt et al. 2018, table G.1, but for Adam and losses that are means over transitions.
  'atari': {'frame_stack': 4, 'max_abs_reward': 1.0, 'batch_size': 32, 'num_steps': 10_000_000},
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  make_environment = functools.partial(registry.make, config.env, options=config.env_options)
  streams = layout(config.num_actors, config.envs_per_actor, config.env_groups, config.eval_envs)
  program = lp.Program('sebulba')

  monitor = program.add_node(
    lp.CourierNode(
      Deferred('nodes.monitor', 'Monitor'), config.run_dir, config.num_steps, config.eval_envs > 0
    ),
    label='monitor',
  )
  replay = program.add_node(
    ReplayNode(functools.partial(Deferred('nodes.replay', 'queue_table'), config.queue_size)),
    label='replay',
  )
  inference = program.add_node(
    lp.CourierNode(
      Deferred('nodes.inference_learner', 'InferenceLearner'),
      functools.partial(Deferred('agents.vtrace.agent', 'VTrace'), config),
      make_environment,
      streams,
      replay,
      monitor,
      actor_devices=config.actor_devices,
      learner_devices=config.learner_devices,
      inference_batch_size=config.inference_batch_size,
      inference_timeout_ms=config.inference_timeout_ms,
      batch_size=config.batch_size,
      num_steps=config.num_steps,
      run_dir=config.run_dir,
      seed=config.seed,
      courier_kwargs={'thread_pool_size': 2 * len(streams) + 4},
    ),
    label='inference_learner',
  )
  with program.group('actor'):
    for i in range(config.num_actors):
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.actor', 'Actor'),
          make_environment,
          inference,
          monitor,
          f'actor/{i}',
          config.envs_per_actor,
          config.env_groups,
          config.seed + 1000 * (i + 1),
        )
      )
  if config.eval_envs:
    program.add_node(
      lp.PyClassNode(
        Deferred('nodes.evaluator', 'Evaluator'),
        make_environment,
        inference,
        monitor,
        config.eval_envs,
        config.eval_episodes,
        config.eval_period,
        config.seed,
      ),
      label='evaluator',
    )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns where each group runs: the inference-learner on the accelerator, the rest on CPUs."""
  accelerator = None if config.accelerator == 'cpu' else config.accelerator
  return {
    'monitor': Resources(),
    'replay': Resources(),
    'inference_learner': Resources(accelerator=accelerator),
    'actor': Resources(),
    'evaluator': Resources(),
  }
