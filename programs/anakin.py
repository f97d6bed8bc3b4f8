"""Anakin: environment, acting and learning in one compiled function on the accelerator host.

evaluator   --get_params-->   anakin
both        --report-->       monitor

With --num_replicas=R there are R such nodes, which form one JAX job: the loop is spread over the devices
of all of their hosts. The first one reports, writes and serves for all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.muzero.config import MuZeroConfig
from agents.ppo.config import PPOConfig
from agents.pqn.config import PQNConfig
from agents.r2d2.config import R2D2Config
from agents.vtrace.config import VTraceConfig
from environments import jax_registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.learning.options import ReplicatedLoopOptions
from nodes.runtime.options import RunOptions
from programs.options import compiled_presets as presets
from programs.options.agent_choice import Variant
from programs.options.compiled_loop import CompiledLoopConfig
from programs.options.compiled_replay import RingOptions
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.launchpad_nodes import AddressHandle, DataCourierNode, Deferred

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 120


@dataclasses.dataclass(frozen=True)
class Config(CompiledLoopConfig):
  """The options of an Anakin run, of V-trace unless `AGENTS` says otherwise."""

  run: RunOptions = RunOptions(agent='vtrace')
  loop: ReplicatedLoopOptions = ReplicatedLoopOptions()
  agent: Any = VTraceConfig(learning_rate=2e-3)


PRESETS = presets.VTRACE
_R2D2 = Config(loop=ReplicatedLoopOptions(num_envs=32), replay=RingOptions(), agent=R2D2Config())
_MUZERO = dataclasses.replace(
  _R2D2, replay=RingOptions(priority_exponent=1.0), agent=MuZeroConfig()
)
AGENTS = {
  'vtrace': Variant(Config(), PRESETS),
  'ppo': Variant(Config(agent=PPOConfig()), presets.PPO),
  'pqn': Variant(Config(agent=PQNConfig()), presets.PQN),
  'r2d2': Variant(_R2D2, presets.R2D2),
  'muzero': Variant(_MUZERO, presets.MUZERO),
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return make_graph('anakin', config, make_agent(config))


def make_graph(name: str, config: CompiledLoopConfig, make_agent: Any) -> lp.Program:
  """Returns Anakin's graph with the given agent.

  Args:
    name: the program's name.
    config: resolved and validated.
    make_agent: takes the specs of observations and actions.
  """
  program = Program(name)
  parts = make_agent, environments.maker(config.run.env, config.run.env_options)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  coordinator = AddressHandle('coordinator') if config.forms_one_job else None
  nodes = [
    DataCourierNode(
      Deferred('nodes.anakin', 'Anakin'),
      *parts,
      None if i else monitor,
      config.loop,
      config.run,
      seed=config.root_seed.child('anakin'),  # The same in all replicas, which run the same loop.
      rings=config.rings,
      name=f'anakin/{i}',
      replica=i,
      coordinator=coordinator,
    )
    for i in range(config.loop.num_replicas)
  ]
  # To each other, if there are several.
  with program.group('anakin', roles=['actor', 'learner'], sends={'parameters': 'learner'}):
    anakin, *_ = [program.add_node(node) for node in nodes]
  if coordinator is not None:
    coordinator.assign(nodes[0])
  anakin.set_client_kwargs(call_timeout=CALL_TIMEOUT)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.compiled', 'CompiledPlayer'),
    *parts,
    anakin,
    None,  # The frames of an evaluation are those of the only loop.
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: CompiledLoopConfig) -> dict[str, Resources]:
  """Returns the resources of each group: the loop on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    anakin=default_placement.on_accelerator(
      config,
      config.loop.num_devices,
      restart=restart,
      one_job=config.forms_one_job,
    )
  )
