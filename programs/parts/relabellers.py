"""Relabeller nodes and their placement."""

from __future__ import annotations

import launchpad as lp

from launchers.placement import Resources
from launchers.program import Program
from nodes.learning.options import TransformOptions
from nodes.unrolls.table_names import RELABELLED, BatchPart
from programs.options.actors import ActorsConfig
from programs.parts import default_placement
from programs.parts.graph_parts import GraphParts
from programs.parts.launchpad_nodes import Deferred


def add_relabellers(program: Program, config: ActorsConfig, parts: GraphParts) -> None:
  """Adds the relabellers, each for all replay servers.

  Args:
    program: the graph.
    config: the program's options.
    parts: of the graph; the agent has `relabel`.
  """
  # As many unrolls at a time as all relabelled unrolls of an update, so they divide over the servers.
  kind = config.replay
  unrolls = kind.relabelled * len(parts.replay) // kind.num_replay_shards
  with program.group(
    'relabeller',
    roles=['transform'],
    sends={'copies': 'replay'},
    receives={'originals': 'replay', 'parameters': 'learner'},
  ):
    for i in range(kind.num_relabellers):
      options = TransformOptions(
        name=f'relabeller/{i}',
        sources=tuple(BatchPart(table, unrolls) for table in kind.relabelled_from),
        target=RELABELLED,
        update_period=config.learning.update_period,
        audit_dir=config.audit_dir,
        seed=config.root_seed.child('relabeller', i),
        online_share=kind.share_of_online,
      )
      program.add_node(lp.PyClassNode(Deferred('nodes.relabeller', 'Relabeller'), *parts, options))


def placement(config: ActorsConfig) -> dict[str, Resources]:
  """Returns the resources of the relabellers, if there are any: an accelerator each, or a CPU."""
  if not config.replay.num_relabellers:
    return {}
  return {
    'relabeller': default_placement.on_accelerator(
      config,
      1,
      restart='on_failure',
      cpu_env=default_placement.ONE_THREAD,
      uses_run_dir=config.unrolls.audit,
    )
  }
