"""Sebulba: central inference and learner on the accelerator host, a queue between them.

actor x N   --timesteps-->  inference_learner   --unrolls-->  replay x K
evaluator   --timesteps-->  inference_learner   <--batches--  replay x K
all nodes   --report-->     monitor

With --num_replicas=R there are R inference-learners, each with its own N actors and K replay servers.
Their learners form one JAX job, whose coordinator is on the first one's host. With --inference_nodes=M:

actor x N, evaluator  --timesteps-->  inference x M  --unrolls-->  replay x K  --batches-->  learner
                                      inference x M  --fetch-->    learner

With --actors_as_threads the actors are threads of the nodes that infer for them, and no nodes.

Programs with relabellers add them between two tables of the same replay servers:

replay x K  --unrolls-->  relabeller x M  --copies-->  replay x K
relabeller x M  --fetch-->  inference_learner or learner
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from agents.ppo.config import PPOConfig
from agents.pqn.config import PQNConfig
from agents.vtrace.config import VTraceConfig
from environments import registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.gossip.options import GossipOptions
from nodes.runtime.options import RunOptions
from nodes.unrolls.tables import Table
from programs.options.agent_choice import Variant
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.presets import (
  IMPALA_ATARI,
  MUJOCO,
  PENDULUM,
  PPO_ATARI,
  PPO_CONTINUOUS,
  PPO_LUNAR_LANDER,
  PPO_MINATAR,
  PPO_MUJOCO,
  PPO_PONG,
  PPO_SMALL,
  PPO_SWINGUP,
  PQN_ATARI,
  PQN_MINATAR,
  PQN_PONG,
  PQN_SMALL,
  VTRACE_CONTINUOUS,
  VTRACE_HOPPER,
  VTRACE_LUNAR_LANDER,
  VTRACE_SMALL,
  VTRACE_SWINGUP,
)
from programs.options.queue import QueueOptions
from programs.parts import default_placement, monitoring
from programs.parts.agent_constructors import make_agent
from programs.parts.central_inference import (
  add_actors,
  add_inference_learners,
  add_inference_nodes,
)
from programs.parts.graph_parts import GraphParts
from programs.parts.launchpad_nodes import Deferred
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 30

# V-trace's options per family of environments; they override the defaults, and flags override them.
PRESETS = {
  # Espeholt et al. 2018, table G.1, except for Adam and losses averaged over transitions.
  'atari': {'frame_stack': 4, 'max_abs_reward': 1.0, 'batch_size': 32, 'num_steps': 10_000_000},
  'catch': {'num_steps': 300_000},
  'gymnasium:LunarLander-v3': VTRACE_LUNAR_LANDER,
  'gymnasium:Pendulum-v1': PENDULUM | {'batch_size': 32},
  **{f'gymnasium:{task}-v5': VTRACE_CONTINUOUS for task in MUJOCO},
  'gymnasium:Hopper-v5': VTRACE_HOPPER,
  'dm_control': VTRACE_CONTINUOUS,
  'dm_control:cartpole/swingup': VTRACE_SWINGUP,
  'minatar': {'num_steps': 5_000_000},  # As Young and Tian 2019.
  OTHERS: VTRACE_SMALL | {'num_steps': 1_000_000},
}
NAMED_PRESETS = {'published': {'atari': IMPALA_ATARI}}
PPO_PRESETS = {
  'atari': PPO_ATARI | {'batch_size': 32},
  'atari:Pong': PPO_PONG,
  'catch': PPO_SMALL | {'num_steps': 300_000},
  'gymnasium:LunarLander-v3': PPO_LUNAR_LANDER,
  'gymnasium:Pendulum-v1': PPO_CONTINUOUS,
  **{f'gymnasium:{task}-v5': PPO_MUJOCO for task in MUJOCO},
  'dm_control': PPO_MUJOCO,
  'dm_control:cartpole/swingup': PPO_SWINGUP,
  # At PureJaxRL's entropy cost, 0.01, policies stop exploring sooner: Asterix and Seaquest return less.
  'minatar': PPO_MINATAR | {'batch_size': 64, 'entropy_cost': 0.03},
  OTHERS: PPO_SMALL | {'num_steps': 1_000_000},
}
# As many environments as a batch has unrolls, so that no unroll is older than an update.
PQN_PRESETS = {
  'atari': PQN_ATARI | {'envs_per_actor': 64, 'batch_size': 128},
  'atari:Pong': PQN_PONG,
  'minatar': PQN_MINATAR | {'envs_per_actor': 64, 'batch_size': 128},
  OTHERS: PQN_SMALL | {'envs_per_actor': 16, 'batch_size': 32, 'num_steps': 500_000},
}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig):
  """The options of a Sebulba run, of V-trace unless `AGENTS` says otherwise."""

  run: RunOptions = RunOptions(agent='vtrace')
  replay: QueueOptions = QueueOptions()
  agent: Any = VTraceConfig()


AGENTS = {
  'vtrace': Variant(Config(), PRESETS, NAMED_PRESETS),
  'ppo': Variant(Config(agent=PPOConfig()), PPO_PRESETS),
  'pqn': Variant(Config(replay=QueueOptions(batch_size=64), agent=PQNConfig()), PQN_PRESETS),
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return make_graph('sebulba', config, make_agent(config))


def make_graph(
  name: str,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  more_tables: Sequence[Table] = (),
  add_observer: Callable[[Program, Any], Any] | None = None,
  add_nodes: Callable[[Program, Any, GraphParts], None] | None = None,
  gossip: GossipOptions | None = None,
) -> lp.Program:
  """Returns Sebulba's graph with the given agent and the config's replay.

  Args:
    name: the program's name.
    config: resolved and validated.
    make_agent: takes the specs of observations and actions, returns an `agents.agent.Agent`.
    more_tables: of each replay server, beside those of `config.replay`.
    add_observer: takes the program and a handle on the monitor, adds a node that receives the unrolls
      (see `nodes.unrolls.observers`), and returns a handle on that node.
    add_nodes: takes the program, the config and what a node between two replay tables needs, and adds
      nodes; see `nodes.transform` and `programs.parts.relabellers`.
    gossip: of replicas that are peers, which mix their parameters; None for one learner in replicas.
  """
  program = Program(name)
  run = config.run
  make_environment = environments.maker(run.env, run.env_options)
  num_ends = config.num_replicas + config.inference.inference_nodes
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT, num_ends)
  replay = add_replay(program, config, monitor, more_tables)
  observers = [add_observer(program, monitor)] if add_observer else []
  for observer in observers:
    observer.set_client_kwargs(call_timeout=CALL_TIMEOUT, data_only=True)
  # The other nodes need no more than the specs.
  describer = environments.describer(run.env, run.env_options, config.acting.actor_python)
  parts = make_agent, describer
  if config.inference.inference_nodes:
    fetching = config.acting.num_actors + 1  # As many as actors at most, and the evaluator.
    params = add_learner(program, config, *parts, replay, monitor, CALL_TIMEOUT, fetching)
    inference = add_inference_nodes(program, config, *parts, params, replay, monitor, observers)
  else:
    inference, params = add_inference_learners(
      program,
      config,
      *parts,
      replay,
      monitor,
      CALL_TIMEOUT,
      observers,
      serves_params=add_nodes is not None,
      gossip=gossip,
    )
  if add_nodes:
    add_nodes(program, config, GraphParts(*parts, params, replay, monitor))
  add_actors(program, config, make_environment, inference, monitor)
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.remote', 'RemotePlayer'),
    make_environment,
    inference[0],
    roles=['evaluator'],
    sends={'rows': 'inference'},
  )
  return program


def placement(config: InferenceConfig) -> dict[str, Resources]:
  """Returns the resources of each group: inference and learner on accelerators, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  on_accelerator = functools.partial(default_placement.on_accelerator, config)
  actor_devices, learner_devices = config.inference.actor_devices, config.learning.learner_devices
  groups = {'replay': Resources(restart=restart)}
  threads = config.threads_per_server
  if config.inference.inference_nodes:
    groups['inference'] = on_accelerator(
      1 + max(actor_devices),
      cpus=1.0 + threads,
      restart='on_failure',
      cpu_env=default_placement.ONE_THREAD,
      uses_run_dir=config.unrolls.any_recorded,
    )
    groups['learner'] = on_accelerator(1 + max(learner_devices), restart=restart)
  else:
    groups['inference_learner'] = on_accelerator(
      1 + max(actor_devices + learner_devices),
      cpus=1.0 + threads,
      restart=restart,
      one_job=config.forms_one_job,
    )
  python = config.acting.actor_python
  if threads:
    return default_placement.placement(**groups)
  groups['actor'] = Resources(restart='on_failure', uses_run_dir=False, python=python)
  placed = default_placement.placement(**groups)
  return placed | {'evaluator': dataclasses.replace(placed['evaluator'], python=python)}
