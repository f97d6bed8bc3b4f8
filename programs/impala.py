"""IMPALA: actors fetch parameters and infer locally; the queue and the learner are Sebulba's.

actor x N   --fetch-->          learner   <--batches--  replay x K  <--unrolls--  actor x N
evaluator   --get_variables-->  learner
all nodes   --report-->         monitor
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.ppo.config import PPOConfig
from agents.pqn.config import PQNConfig
from agents.vtrace.config import VTraceConfig
from environments import registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.inference.layout import layout
from nodes.inference.serving import one_group
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options.actors import ActorsConfig
from programs.options.agent_choice import Variant
from programs.options.presets import PPO_MINATAR, PPO_PONG
from programs.options.queue import QueueOptions
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import Deferred
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay

CALL_TIMEOUT = sebulba.CALL_TIMEOUT
PRESETS, NAMED_PRESETS = sebulba.PRESETS, sebulba.NAMED_PRESETS
# On two cores the learner is the bottleneck; in Sebulba inference is. So unrolls wait in the queue here.
# On MinAtar, policies keep exploring on such stale unrolls, also at PureJaxRL's entropy cost. Only
# on Seaquest they have the cost of Anakin and Sebulba.
PPO_PRESETS = sebulba.PPO_PRESETS | {
  'atari:Pong': PPO_PONG | {'queue_size': 16, 'num_steps': 8_000_000},
  'minatar': PPO_MINATAR | {'batch_size': 64},
  'minatar:Seaquest': {'entropy_cost': 0.03},
}


@dataclasses.dataclass(frozen=True)
class Config(ActorsConfig):
  """The options of an IMPALA run, of V-trace unless `AGENTS` says otherwise."""

  run: RunOptions = RunOptions(agent='vtrace')
  replay: QueueOptions = QueueOptions()
  agent: Any = VTraceConfig()


AGENTS = {
  'vtrace': Variant(Config(), PRESETS, NAMED_PRESETS),
  'ppo': Variant(Config(agent=PPOConfig()), PPO_PRESETS),
  'pqn': Variant(
    Config(replay=QueueOptions(batch_size=64), agent=PQNConfig()), sebulba.PQN_PRESETS
  ),
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  program = Program('impala')
  parts = make_agent(config), environments.maker(config.run.env, config.run.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  replay = add_replay(program, config, monitor)
  acting = config.acting
  fetching = acting.num_actors + 1  # The actors and the evaluator.
  learner = add_learner(program, config, *parts, replay, monitor, CALL_TIMEOUT, fetching)

  with program.group(
    'actor',
    roles=['actor', 'inference'],
    sends={'unrolls': 'replay'},
    receives={'parameters': 'learner'},
  ):
    for i, env_group in enumerate(layout(acting.num_actors, acting.envs_per_actor, env_groups=1)):
      seed = config.root_seed.child('actor', i)
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.impala_actor', 'ImpalaActor'),
          *parts,
          one_group(env_group, seed, acting.num_environments, config.sinks),
          learner,
          replay,
          monitor,
          config.learning.update_period,
        )
      )
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.fetched', 'FetchingPlayer'),
    *parts,
    learner,
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group: the learner on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    replay=Resources(restart=restart),
    learner=default_placement.on_accelerator(
      config, 1 + max(config.learning.learner_devices), restart=restart
    ),
    actor=Resources(
      restart='on_failure',
      cpu_env=default_placement.ONE_THREAD,
      uses_run_dir=config.unrolls.any_recorded,
    ),
  )
