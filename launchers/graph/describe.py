"""Describes a graph as text: its groups, nodes, placement and edges."""

from __future__ import annotations

from collections.abc import Mapping

import launchpad as lp

from launchers.graph import handles
from launchers.placement import Resources


def edges(program: lp.Program) -> dict[tuple[str, str], int]:
  """Counts the handles that the nodes of one group hold on another: {(from, to): count}."""
  nodes = handles.nodes(program)
  count: dict[tuple[str, str], int] = {}
  for node in nodes:
    for owner in node.holds:
      key = node.label, nodes[owner].label
      count[key] = count.get(key, 0) + 1
  return count


def what_runs(node: lp.PyNode) -> str:
  """Returns the name of the class or function that a node runs; '' if it has none of the user's.

  For a colocation, returns those of the nodes that it runs, as in 'Learner + Replay'. For a node with
  other parts of the graph as threads, those too, as in 'LearnerNode + 2 ActorThread'.
  """
  inner = getattr(node, 'nodes', ())
  names = [what_runs(one) or type(one).__name__ for one in inner] or [_own_name(node)]
  names += getattr(node, 'threads', ())
  return ' + '.join(
    f'{names.count(name)} {name}' if names.count(name) > 1 else name
    for name in dict.fromkeys(names)
  )


def _own_name(node: lp.PyNode) -> str:
  function = getattr(node, '_constructor', None) or getattr(node, '_function', None)
  if getattr(function, '__self__', None) is node:  # The method of a node such as Reverb's.
    return ''
  return getattr(function, 'name', getattr(function, '__name__', type(function).__name__))


def requests(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns what each group asks of a cluster, and the sums, in several lines."""
  width = max(map(len, program.groups))
  lines, sums, size = (
    ['asked of the cluster'],
    dict.fromkeys(('CPU', 'GPU', 'TPU', 'GB of memory'), 0.0),
    0,
  )
  for label, nodes in program.groups.items():
    resources, number = placement[label], len(nodes)
    size += number
    words = ', '.join(resources.requests()) or 'nothing set aside'
    lines.append(f'  {label:{width}}  {number:3} x {words}')
    sums['CPU'] += number * resources.cpus
    sums['GB of memory'] += number * resources.memory_gb
    if kind := resources.accelerator_kind:
      sums[kind.upper()] += number * resources.device_count
  total = ', '.join(f'{amount:g} {name}' for name, amount in sums.items() if amount)
  lines.append(f'  {"in all":{width}}  {size:3} nodes: {total or "nothing set aside"}')
  return '\n'.join(lines)


def describe(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns the description of a graph, in several lines."""
  width = max(map(len, program.groups))
  lines = [f'program {program.name}', '', 'groups']
  for label, nodes in program.groups.items():
    kind, runs = type(nodes[0]).__name__, what_runs(nodes[0])
    where = placement[label].describe()
    lines.append(f'  {label:{width}}  {len(nodes):3} x {kind}{runs and f"({runs})"}  on a {where}')
  lines += ['', 'edges (caller -> server)']
  for (source, target), count in edges(program).items():
    lines.append(f'  {source:{width}} -> {target:{width}}  {count}')
  return '\n'.join(lines)
