"""Derives what flows between the groups of a graph, from its handles and what the groups declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import launchpad as lp

from launchers.graph import describe
from launchers.placement import Resources
from launchers.program import Declared, declared
from rundir.graph_file import Flow, Graph, Group
from rundir.roles import MONITOR


def graph(program: lp.Program, placement: Mapping[str, Resources]) -> Graph:
  """Returns the groups of a program, with their roles, and the flows between them."""
  known = declared(program)
  groups = tuple(
    Group(
      label,
      len(nodes),
      describe.what_runs(nodes[0]),
      placement[label].describe(),
      known[label].roles,
    )
    for label, nodes in program.groups.items()
  )
  flows: list[Flow] = []
  for holder, owner in describe.edges(program):
    flows += _on_handles(known, holder, owner)
  return Graph(groups, tuple(flows))


def _on_handles(known: Mapping[str, Declared], holder: str, owner: str) -> list[Flow]:
  """Returns what flows on the handles that the nodes of one group hold on those of another."""
  found = [*_from(known, holder, owner), *_from(known, owner, holder)]
  if found:
    return list(dict.fromkeys(found))  # Within a group, both directions are the same.
  return [Flow(holder, owner, 'reports' if MONITOR in known[owner].roles else 'calls')]


def _from(known: Mapping[str, Declared], source: str, target: str) -> Iterator[Flow]:
  """Yields what one group declares that it sends to another, and what the other says it receives."""
  for what, role in known[source].sends.items():
    if role in known[target].roles:
      yield Flow(source, target, what)
  for what, role in known[target].receives.items():
    if role in known[source].roles:
      yield Flow(source, target, what)
