"""Groups with an interpreter of their own: its command line, and what is checked before the start."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import launchpad as lp

from environments import crossing, interpreters
from launchers import pickling
from launchers.graph import handles
from launchers.placement import Resources

# What the process of every node imports.
_MODULES = 'launchers.node_entry', 'launchers.profiling'


def check(python: str, modules: Sequence[str], where: str) -> None:
  """Checks that an interpreter exists and can import what the processes of nodes need.

  Args:
    python: its absolute path.
    modules: of the nodes.
    where: names what chose it; begins the sentence of an error.

  Raises:
    ValueError: if it cannot; one sentence that names what to do.
  """
  found = interpreters.probe(python, (*_MODULES, *sorted(modules)))
  if found.problem:
    raise ValueError(f'{where}: {python} {found.problem}.')


def refuse(placement: Mapping[str, Resources], why: str) -> None:
  """Raises ValueError if a group has an interpreter of its own, which the launcher cannot run.

  Args:
    placement: resources of each group.
    why: a sentence; ends that of the error.
  """
  for label, resources in placement.items():
    if resources.python:
      raise ValueError(f'group {label!r}: python={resources.python}: {why}')


def problems(program: lp.Program, placement: Mapping[str, Resources]) -> Iterator[str]:
  """Yields an error for each interpreter that cannot run the nodes of its groups, one sentence each.

  Each interpreter is tried in one process. A node must not carry code as bytecode of another Python.

  Args:
    program: the graph; it can be pickled.
    placement: resources of each group.
  """
  nodes = [node for node in handles.nodes(program) if placement[node.label].python]
  groups: dict[str, dict[str, list[handles.Node]]] = {}
  for node in nodes:
    groups.setdefault(placement[node.label].python, {}).setdefault(node.label, []).append(node)
  for python, labels in groups.items():
    modules = {
      label: {module for node in members for module in _modules(node.node)}
      for label, members in labels.items()
    }
    found = interpreters.probe(python, (*_MODULES, *sorted(set().union(*modules.values()))))
    if found.problem:
      label = next((each for each, names in modules.items() if found.module in names), None)
      yield f'group {label or next(iter(labels))!r}: {python} {found.problem}.'
    elif found.version != sys.version_info[:2]:
      for members in labels.values():
        yield from _with_bytecode(members, python, found.version)


def _modules(node: Any) -> Iterator[str]:
  """Yields the modules that a node, or a part of it, will import because its constructor names them."""
  for part in handles.parts(node):
    module = getattr(getattr(part, '_constructor', None), 'module', None)
    if isinstance(module, str):
      yield module


def _with_bytecode(
  nodes: Sequence[handles.Node], python: str, version: tuple[int, int]
) -> Iterator[str]:
  """Yields an error for the first of a group's nodes that carries bytecode."""
  for node in nodes:
    function = node.node.function
    if crossing.has_code(function):
      found = pickling.culprit(function, crossing.has_code)
      what = f'{found[0]}, of type {type(found[1]).__name__},' if found else 'something in it'
      yield (
        f'group {node.label!r}: {python} is Python {version[0]}.{version[1]} and cannot run the '
        f'bytecode of Python {sys.version_info[0]}.{sys.version_info[1]} in node {node.name}, because '
        f'{what} is defined where it cannot be imported; move it into a module that both can import.'
      )
      return
