"""What nodes that infer have in common, with the learner or apart from it; and those apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from nodes.inference.layout import StreamSpec, layout
from programs.options.inference import InferenceConfig
from programs.parts.address import AddressHandle, InferenceHandle, ListeningNode
from programs.parts.deferred import Deferred


def streams(config: InferenceConfig, server: int) -> list[StreamSpec]:
  """Returns the streams that ask one of the nodes that infer."""
  return layout(
    config.actors_per_server,
    config.envs_per_actor,
    config.env_groups,
    config.eval_envs,
    server,
    config.num_servers,
  )


def serving(config: InferenceConfig) -> dict[str, Any]:
  """Returns the options that all of them have."""
  return {
    'actor_devices': config.actor_devices,
    'inference_batch_size': config.inference_batch_size,
    'inference_timeout_ms': config.inference_timeout_ms,
    'one_core': config.one_core,
  }


def add_inference(
  program: lp.Program,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  learner: Any,
  replay: Sequence[AddressHandle],
  monitor: Any,
  watchers: Sequence[Any] = (),
) -> list[InferenceHandle]:
  """Adds inference nodes, each for an equal share of the actors; returns a handle on each.

  Args:
    program: to add them to.
    config: of the program.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    learner: a handle on it.
    replay: addresses of the replay servers, to which each node writes.
    monitor: a handle on it.
    watchers: handles on nodes that see unrolls go by; see nodes.unrolls.observers.
  """
  handles = []
  with program.group('inference'):
    for i in range(config.inference_nodes):
      node = ListeningNode(
        InferenceHandle('inference'),
        Deferred('nodes.inference_worker', 'InferenceNode'),
        make_agent,
        make_environment,
        streams(config, i),
        learner,
        replay,
        monitor,
        name=f'inference/{i}',
        watchers=watchers,
        **serving(config),
        num_environments=config.num_actors * config.envs_per_actor,
        update_period=config.update_period,
        audit_dir=config.run_dir if config.audit else '',
        seed=config.root_seed.child('inference', i),
      )
      handles.append(program.add_node(node))
  return handles
