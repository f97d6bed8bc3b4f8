"""Checks of a program graph before launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import launchpad as lp

from launchers import own_python
from launchers.graph import check as graph_check
from launchers.graph import handles
from launchers.placement import Resources
from nodes.replay_server import interpreter
from programs.parts.launchpad_nodes import ReplayNode


def check(
  program: lp.Program,
  placement: Mapping[str, Resources],
  cycles: Collection[Collection[str]] | None = (),
  pickled: bool = True,
) -> None:
  """Checks a graph.

  Args:
    program: the graph.
    placement: resources for each group.
    cycles: sets of groups whose nodes may call each other in a cycle; None if every node may call
      every node, itself included.
    pickled: whether the launcher pickles nodes to run them in separate processes.

  Raises:
    ValueError: every problem found, one sentence and one line each.
  """
  nodes = handles.nodes(program)
  problems = [*graph_check.problems(program, placement, pickled)]
  if cycles is not None:
    problems += _own_handles(nodes)
  problems += _replay_without_peers(nodes)
  if cycles is not None:
    problems += _cycles(nodes, cycles)
  if pickled and not problems:
    problems += own_python.problems(program, placement)
  if problems:
    raise ValueError('\nerror: '.join(problems))


def _own_handles(nodes: Sequence[handles.Node]) -> Iterator[str]:
  for k, node in enumerate(nodes):
    if k in node.calls:
      yield f'node {node.name} is given a handle on itself; leave it out, and call the method.'


def _replay_without_peers(nodes: Sequence[handles.Node]) -> Iterator[str]:
  for k, node in enumerate(nodes):
    others = (other for other in nodes if other is not node)
    if isinstance(node.node, ReplayNode) and not any(k in other.holds for other in others):
      yield f'no node writes to {node.name} or reads from it; give its handle to a node, or drop it.'


def _cycles(nodes: Sequence[handles.Node], allowed: Collection[Collection[str]]) -> Iterator[str]:
  known = [set(groups) for groups in allowed]
  for cycle in handles.cycles(nodes):
    labels = {nodes[k].label for k in cycle}
    if not any(labels <= groups for groups in known):
      known.append(labels)
      way = ' -> '.join(nodes[k].name for k in (*cycle, cycle[0]))
      yield (
        f'nodes call each other in a cycle, {way}, and may deadlock; remove a handle, '
        f'or, if none of their RPCs waits for another, set CYCLES = [{sorted(labels)}] in your file.'
      )


def check_replay(program: lp.Program) -> None:
  """Raises ValueError, one sentence, if a program has replay and Reverb's Python is missing here."""
  has_replay = any(isinstance(x, ReplayNode) for nodes in program.groups.values() for x in nodes)
  if has_replay and (problem := interpreter.problem()):
    raise ValueError(problem)
