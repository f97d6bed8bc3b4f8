"""IMPALA: actors fetch parameters and infer locally; the queue and the learner are Sebulba's.

actor x N   --fetch-->          learner   <--batches--  replay x K  <--unrolls--  actor x N
evaluator   --get_variables-->  learner
all nodes   --report-->         monitor
"""

from __future__ import annotations

import dataclasses

import launchpad as lp

from environments import registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.inference.layout import layout
from nodes.inference.options import ServingOptions
from programs import sebulba
from programs.options.agent_choice import Variant, WithPPO, WithVTrace
from programs.options.presets import PPO_MINATAR, PPO_PONG
from programs.options.queue import QueueConfig
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import Deferred
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay, make_queue

CALL_TIMEOUT = sebulba.CALL_TIMEOUT
PRESETS, NAMED_PRESETS = sebulba.PRESETS, sebulba.NAMED_PRESETS
# On two cores the learner is the bottleneck; in Sebulba inference is. So unrolls wait in the queue here.
# On MinAtar, policies keep exploring on such stale unrolls, also at PureJaxRL's entropy cost.
PPO_PRESETS = sebulba.PPO_PRESETS | {
  'atari:Pong': PPO_PONG | {'queue_size': 16, 'num_steps': 8_000_000},
  'minatar': PPO_MINATAR | {'batch_size': 64},
}


@dataclasses.dataclass(frozen=True)
class Config(QueueConfig, WithVTrace):
  """The options of an IMPALA run with V-trace."""


@dataclasses.dataclass(frozen=True)
class PPOConfig(QueueConfig, WithPPO):
  """The options of an IMPALA run with PPO."""


AGENTS = {
  'vtrace': Variant(Config, PRESETS, NAMED_PRESETS),
  'ppo': Variant(PPOConfig, PPO_PRESETS),
}


def make_program(config: Config | PPOConfig) -> lp.Program:
  """Returns the program graph."""
  program = Program('impala')
  parts = make_agent(config), environments.maker(config.env, config.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  replay = add_replay(program, config, make_queue(config), monitor)
  learner = add_learner(program, config, *parts, replay, monitor, CALL_TIMEOUT)

  with program.group(
    'actor',
    roles=['actor', 'inference'],
    sends={'unrolls': 'replay'},
    receives={'parameters': 'learner'},
  ):
    for i, env_group in enumerate(layout(config.num_actors, config.envs_per_actor, env_groups=1)):
      serving = ServingOptions(
        devices=(0,),
        batch_size=config.envs_per_actor,
        timeout_ms=0.0,
        one_core=False,
        num_environments=config.num_actors * config.envs_per_actor,
        audit_dir=config.audit_dir,
        seed=config.root_seed.child('actor', i),
        unrolls_per_item=config.unrolls_per_item,
        recording=config.recording,
      )
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.impala_actor', 'ImpalaActor'),
          *parts,
          env_group,
          learner,
          replay,
          monitor,
          serving=serving,
          update_period=config.update_period,
        )
      )
  evaluator = Deferred('nodes.impala_evaluator', 'ImpalaEvaluator')
  monitoring.add_evaluator(
    program,
    config,
    evaluator,
    *parts,
    learner,
    monitor,
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: Config | PPOConfig) -> dict[str, Resources]:
  """Returns the resources of each group: the learner on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    replay=Resources(restart=restart),
    learner=default_placement.on_accelerator(
      config, 1 + max(config.learner_devices), restart=restart
    ),
    actor=Resources(
      restart='on_failure',
      cpu_env=default_placement.ONE_THREAD,
      uses_run_dir=config.actors_use_run_dir,
    ),
  )
