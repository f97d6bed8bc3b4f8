"""Checks of a program graph before launch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import launchpad as lp
from launchpad.launch import serialization

from launchers import pickling
from launchers.graph import handles
from launchers.placement import Resources
from programs.parts.launchpad_nodes import ReplayNode
from rundir import one_line


def check(
  program: lp.Program,
  placement: Mapping[str, Resources],
  cycles: Collection[Collection[str]] = (),
  pickled: bool = True,
) -> None:
  """Checks a graph.

  Args:
    program: the graph.
    placement: resources for each group.
    cycles: sets of groups whose nodes may call each other in a circle.
    pickled: whether the launcher pickles nodes to run them in separate processes.

  Raises:
    ValueError: every problem found, one sentence and one line each.
  """
  nodes = handles.nodes(program)
  problems = [*_misnamed(program), *_unplaced(program, placement)]
  problems += [*_handles(nodes), *_circles(nodes, cycles)]
  if problems := problems + ([*_unpicklable(nodes)] if pickled else []):
    raise ValueError('\nerror: '.join(problems))


def _misnamed(program: lp.Program) -> Iterator[str]:
  """Yields an error for each name that is unusable in file names, log lines or job scripts."""
  for what, name in (('program', program.name), *(('group', label) for label in program.groups)):
    try:
      one_line.check(f'the name of the {what}, ', name)
    except ValueError as error:
      yield str(error)
    if what == 'group' and '/' in name:
      yield f'the name of the group, {name!r}, has a slash, but files are named after it; rename it.'


def _unplaced(program: lp.Program, placement: Mapping[str, Resources]) -> Iterator[str]:
  spare = ', '.join(map(repr, sorted(placement.keys() - program.groups.keys())))
  hint = f'; it places {spare}, which is not a group' if spare else ''
  for label in program.groups:
    if label not in placement:
      yield f'group {label!r} has no placement; add it to what placement(config) returns{hint}.'


def _handles(nodes: Sequence[handles.Node]) -> Iterator[str]:
  for k, node in enumerate(nodes):
    if k in node.calls:
      yield f'node {node.name} is given a handle on itself; leave it out, and call the method.'
    if node.strangers:
      yield f'node {node.name} has a handle on a node that was not added; call program.add_node.'
    others = (other for other in nodes if other is not node)
    if isinstance(node.node, ReplayNode) and not any(k in other.holds for other in others):
      yield f'no node writes to {node.name} or reads from it; give its handle to a node, or drop it.'


def _circles(nodes: Sequence[handles.Node], allowed: Collection[Collection[str]]) -> Iterator[str]:
  told = [set(groups) for groups in allowed]
  for circle in handles.circles(nodes):
    labels = {nodes[k].label for k in circle}
    if not any(labels <= groups for groups in told):
      told.append(labels)
      way = ' -> '.join(nodes[k].name for k in (*circle, circle[0]))
      yield (
        f'nodes call each other in a circle, {way}, and may deadlock; remove a handle, '
        f'or, if none of their RPCs waits for another, set CYCLES = [{sorted(labels)}] in your file.'
      )


def _unpicklable(nodes: Sequence[handles.Node]) -> Iterator[str]:
  """Yields an error for the first node of each group that cannot be pickled."""
  serialization.enable_lru_cache_pickling_once()
  told: set[str] = set()
  for node in nodes:
    if node.label not in told:
      try:
        pickling.dumps(node.name, node.node.function)
      except ValueError as error:
        told.add(node.label)
        yield str(error)
