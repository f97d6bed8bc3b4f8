"""Sebulba's inference-learners, or the inference nodes beside a stand-alone learner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from agents.seeding import Seed
from launchers.program import Program
from nodes.gossip.options import GossipOptions
from nodes.inference.layout import EnvGroupSpec, layout
from nodes.inference.serving import ActorThread, Serving
from programs.options.inference import InferenceConfig
from programs.parts import peers
from programs.parts.launchpad_nodes import (
  AddressHandle,
  Deferred,
  InferenceHandle,
  ListeningCourierNode,
  ListeningNode,
)
from programs.parts.learner import training_options
from rundir.roles import Role


def add_actors(
  program: Program,
  config: InferenceConfig,
  make_environment: Callable[..., Any],
  inference: Sequence[Any],
  monitor: Any,
) -> None:
  """Adds the actors, which inference servers act for in turn, unless they are threads of the servers.

  Args:
    program: the graph.
    config: the program's options.
    make_environment: takes (number of environments, seed).
    inference: handles on the inference servers.
    monitor: a handle on the monitor.
  """
  acting = config.acting
  if acting.actors_as_threads:
    return
  with program.group('actor', roles=['actor'], sends={'rows': 'inference'}):
    for i in range(config.num_replicas * acting.num_actors):
      program.add_node(
        lp.PyClassNode(
          Deferred('nodes.actor', 'Actor'),
          make_environment,
          inference[i % len(inference)],
          monitor,
          f'actor/{i}',
          acting.envs_per_actor,
          acting.env_groups,
          config.root_seed.child('actor', i),
        )
      )


def acting_roles(config: InferenceConfig, *others: Role) -> tuple[Role, ...]:
  """Returns the roles of nodes that infer: with `others`, and as actors if those are their threads."""
  return (*(('actor',) if config.acting.actors_as_threads else ()), 'inference', *others)


def threads_of_servers(config: InferenceConfig) -> list[str]:
  """Returns the names of what runs in the process of each node that infers, besides the node."""
  return [ActorThread.__name__] * config.threads_per_server


def add_inference_nodes(
  program: Program,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  learner: Any,
  replay: Sequence[AddressHandle],
  monitor: Any,
  observers: Sequence[Any] = (),
) -> list[Any]:
  """Adds the inference nodes, which fetch the parameters of a stand-alone learner.

  Args:
    program: the graph.
    config: the program's options.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    learner: a handle on the learner.
    replay: addresses of the replay servers.
    monitor: a handle on the monitor.
    observers: handles on nodes that receive the unrolls.

  Returns:
    A handle on each, for its actors.
  """
  inference = []
  with program.group(
    'inference',
    roles=acting_roles(config),
    sends={'unrolls': 'replay'},
    receives={'parameters': 'learner'},
  ):
    for i in range(config.inference.inference_nodes):
      worker = ListeningNode(
        InferenceHandle('inference'),
        Deferred('nodes.inference_node', 'InferenceNode'),
        make_agent,
        make_environment,
        serving(config, i, config.root_seed.child('inference', i), make_environment, observers),
        learner,
        replay,
        monitor,
        name=f'inference/{i}',
        update_period=config.learning.update_period,
      )
      worker.threads = threads_of_servers(config)
      inference.append(program.add_node(worker))
  return inference


def add_inference_learners(
  program: Program,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  replay: Sequence[AddressHandle],
  monitor: Any,
  call_timeout: float,
  observers: Sequence[Any] = (),
  serves_params: bool = False,
  gossip: GossipOptions | None = None,
) -> tuple[list[Any], Any]:
  """Adds the inference-learners: replicas that form one JAX job, or peers that mix their parameters.

  Args:
    program: the graph.
    config: the program's options.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    replay: addresses of the replay servers, those of the first replica first.
    monitor: a handle on the monitor.
    call_timeout: deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
    observers: handles on nodes that receive the unrolls.
    serves_params: whether other nodes fetch the first replica's parameters.
    gossip: makes the replicas peers, which mix their parameters; None for learners that average their
      gradients.

  Returns:
    A handle on each, for its actors, and a handle on the first one's parameters; None if it does not
    serve them.
  """
  replicas, shards = config.num_replicas, config.replay.num_replay_shards
  seed = config.root_seed.child('learner')
  coordinator = AddressHandle('coordinator') if config.forms_one_job else None
  make_node = ListeningCourierNode if serves_params or gossip else ListeningNode
  nodes: list[Any] = []
  inference = []
  with program.group(
    'inference_learner',
    roles=acting_roles(config, 'learner'),
    sends={'unrolls': 'replay', 'parameters': 'learner'},  # To each other, if there are several.
    receives={'batches': 'replay'},
  ):
    for i in range(replicas):
      training = dataclasses.replace(
        training_options(config, f'inference_learner/{i}'),
        one_core=config.inference.one_core,
        replica=i,
        num_replicas=replicas,
      )
      if gossip:
        training = peers.training_of(gossip, training, i)
      own_seed = seed.child('peer', i) if gossip else seed
      node = make_node(
        InferenceHandle('inference'),
        Deferred('nodes.learner', 'LearnerNode'),
        make_agent,
        make_environment,
        replay[i * shards : (i + 1) * shards],
        monitor,
        training,
        serving=serving(
          config, i, own_seed.child('replica', training.replica), make_environment, observers
        ),
        serves_params=serves_params,
        coordinator=coordinator,
      )
      node.threads = threads_of_servers(config)
      nodes.append(node)
      inference.append(program.add_node(node))
  if coordinator is not None:
    coordinator.assign(nodes[0])
  if gossip:
    peers.connect(gossip, nodes, call_timeout)
  if not serves_params:
    return inference, None
  params = nodes[0].create_courier_handle()
  params.set_client_kwargs(call_timeout=call_timeout)
  return inference, params


def serving(
  config: InferenceConfig,
  server: int,
  seed: Seed,
  make_environment: Callable[..., Any],
  observers: Sequence[Any] = (),
  *,
  evaluates: bool = True,
) -> Serving:
  """Returns what inference server number `server` serves.

  Args:
    config: the program's options.
    server: from 0.
    seed: of its actions.
    make_environment: takes (number of environments, seed); for actors that are threads.
    observers: handles on nodes that receive the unrolls.
    evaluates: whether the first server acts for the evaluator.
  """
  env_groups = layout(
    config.actors_per_server,
    config.acting.envs_per_actor,
    config.acting.env_groups,
    config.evaluation.eval_envs if evaluates else 0,
    server,
    config.num_servers,
  )
  threads = config.acting.actors_as_threads
  return Serving(
    env_groups,
    config.inference,
    seed,
    config.num_environments,
    config.sinks,
    observers,
    _actor_threads(config, env_groups, make_environment) if threads else (),
  )


def _actor_threads(
  config: InferenceConfig,
  env_groups: Sequence[EnvGroupSpec],
  make_environment: Callable[..., Any],
) -> list[ActorThread]:
  """Returns the actors of these environment groups."""
  acting, actors = config.acting, []
  for actor_id in dict.fromkeys(each.actor_id for each in env_groups if each.training):
    group, index = actor_id.split('/')
    seed = config.root_seed.child(group, int(index))
    sizes = acting.envs_per_actor, acting.env_groups
    actors.append(ActorThread(make_environment, actor_id, *sizes, seed))
  return actors
