"""Checks of any graph before launch, a built-in one or a user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import launchpad as lp
from launchpad.launch import serialization

from launchers import pickling
from launchers.graph import handles
from launchers.placement import Resources
from rundir import one_line


def problems(
  program: lp.Program,
  placement: Mapping[str, Resources],
  pickled: bool = True,
  placed_by: str = 'what placement(config) returns',
) -> Iterator[str]:
  """Yields every problem of a graph that no launcher can run, one sentence each.

  Args:
    program: the graph.
    placement: resources for each group.
    pickled: whether the launcher pickles nodes to run them in separate processes.
    placed_by: where the user places groups, for the message.
  """
  if not program.groups:
    yield f'program {program.name!r} has no nodes; call program.add_node.'
  yield from _misnamed(program)
  yield from _unplaced(program, placement, placed_by)
  nodes = handles.nodes(program)
  unsupported = [*_unsupported(nodes)]
  yield from unsupported
  for node in nodes:
    if node.strangers:
      yield f'node {node.name} has a handle on a node that was not added; call program.add_node.'
  if pickled and not unsupported:
    yield from _unpicklable(nodes)


def _misnamed(program: lp.Program) -> Iterator[str]:
  """Yields an error for each name that is unusable in file names, log lines or job scripts."""
  for what, name in (('program', program.name), *(('group', label) for label in program.groups)):
    try:
      one_line.check(f'the name of the {what}, ', name)
    except ValueError as error:
      yield str(error)
    if what == 'group' and '/' in name:
      yield f'the name of the group, {name!r}, has a slash, but files are named after it; rename it.'


def _unplaced(
  program: lp.Program, placement: Mapping[str, Resources], placed_by: str
) -> Iterator[str]:
  spare = ', '.join(map(repr, sorted(placement.keys() - program.groups.keys())))
  hint = f'; it places {spare}, which is not a group' if spare else ''
  for label in program.groups:
    if label not in placement:
      yield f'group {label!r} has no placement; add it to {placed_by}{hint}.'


def _unsupported(nodes: Sequence[handles.Node]) -> Iterator[str]:
  """Yields an error for each node of a type that no launcher of this repository can run."""
  for node in nodes:
    for part in handles.parts(node.node):
      if not isinstance(part, lp.PyNode):
        yield (
          f'node {node.name} is a {type(part).__name__}, which is not an lp.PyNode, so it has no '
          'function to run; use lp.PyNode, lp.PyClassNode, lp.CourierNode or '
          'lp.MultiThreadingColocation.'
        )
      elif type(part).__name__ == 'MultiProcessingColocation':
        yield (
          f'node {node.name} is a MultiProcessingColocation, which this version of Launchpad ships '
          'without its process entry; add its nodes to the program one by one, or use '
          'lp.MultiThreadingColocation.'
        )


def _unpicklable(nodes: Sequence[handles.Node]) -> Iterator[str]:
  """Yields an error for the first node of each group that cannot be pickled."""
  serialization.enable_lru_cache_pickling_once()
  reported: set[str] = set()
  for node in nodes:
    if node.label not in reported:
      try:
        pickling.dumps(node.name, node.node.function)
      except ValueError as error:
        reported.add(node.label)
        yield str(error)
