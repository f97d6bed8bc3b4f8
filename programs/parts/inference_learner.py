"""Inference-learners, one for each replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import launchpad as lp

from programs.options.inference import InferenceConfig
from programs.parts.address import AddressHandle, InferenceHandle, ListeningNode
from programs.parts.deferred import Deferred
from programs.parts.inference import serving, streams
from programs.parts.learner import training


def add_inference_learners(
  program: lp.Program,
  config: InferenceConfig,
  make_agent: Callable[..., Any],
  make_environment: Callable[..., Any],
  replay: Sequence[AddressHandle],
  monitor: Any,
  watchers: Sequence[Any] = (),
) -> list[InferenceHandle]:
  """Adds the inference-learners; returns a handle on each.

  Args:
    program: to add them to.
    config: of the program.
    make_agent: takes the specs of observations and actions.
    make_environment: takes (number of environments, seed).
    replay: addresses of all servers, those of a replica side by side.
    monitor: a handle on it.
    watchers: handles on nodes that see unrolls go by; see nodes.unrolls.observers.
  """
  replicas, shards = config.num_replicas, config.num_replay_shards
  coordinator = AddressHandle('coordinator') if replicas > 1 else None
  handles = []
  with program.group('inference_learner'):
    for replica in range(replicas):
      node = ListeningNode(
        InferenceHandle('inference'),
        Deferred('nodes.inference_learner', 'InferenceLearner'),
        make_agent,
        make_environment,
        streams(config, replica),
        replay[replica * shards : (replica + 1) * shards],
        monitor,
        watchers=watchers,
        **serving(config),
        **training(config),
        replica=replica,
        num_replicas=replicas,
        coordinator=coordinator,
      )
      if coordinator is not None and replica == 0:
        coordinator.assign(node)
      handles.append(program.add_node(node))
  return handles
