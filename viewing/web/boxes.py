"""What the page draws of a graph: its boxes with their meters, its edges with their rates."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

from launchers.bottleneck import Utilization
from nodes.runtime import activity
from rundir import node_files
from rundir.graph_file import Flow, Graph, Group
from rundir.roles import EVALUATOR, LEARNER
from viewing.node_log import NodeLog
from viewing.processes import Sample

BUSY, IDLE, HELD, UNKNOWN = 'busy', 'idle', 'held', 'unknown'
_HALF = 0.5
# What flows back or between tables; whatever else a graph declares flows to the right.
_NOT_FORWARD = {'batches', 'parameters', 'originals', 'copies', 'offline', 'reports'}
_RESTING = {activity.IDLE.name, activity.STARTING.name, ''}


def node(
  means: Mapping[str, float], figures: Utilization, sample: Sample | None, cores: float
) -> tuple[str, list[tuple[str, float]]]:
  """Returns the state of a node and its meters, as (name, share).

  Args:
    means: of its measurements over the last minute.
    figures: of the program.
    sample: of its process; None without one.
    cores: that its process uses; nan if unknown.
  """
  held = figures.actors_are_held_back or figures.queue_is_full
  if 'stepping_share' in means:
    stepping = means['stepping_share']
    state = BUSY if stepping >= _HALF else HELD if held else IDLE
    return state, [('environments', stepping)]
  meters = []
  if 'inference_busy_share' in means:
    meters.append(('inference', means['inference_busy_share']))
  if 'learner_waiting_share' in means:
    meters.append(('learner', 1.0 - means['learner_waiting_share']))
  if meters:
    busy = max(share for _, share in meters)
    only_acts = len(meters) == 1 and 'inference_busy_share' in means
    return BUSY if busy >= _HALF else HELD if held and only_acts else IDLE, meters
  if sample is None:
    return UNKNOWN, []
  if sample.doing == activity.SERVING.name:  # Others decide how much it has to do.
    return BUSY if cores >= _HALF else IDLE, []
  waiting = sample.doing.startswith(('waiting', 'waits'))  # Older runs have 'waits for'.
  resting = waiting or sample.doing in _RESTING
  return IDLE if resting else BUSY, []


def groups(
  graph: Graph, names: Sequence[str], states: Mapping[str, tuple[str, list[tuple[str, float]]]]
) -> list[dict[str, Any]]:
  """Returns each group with its place in the picture, its state and the means of its meters.

  `counts` has the number of its nodes in each state.

  Args:
    graph: the recorded graph.
    names: of all nodes.
    states: of each node, from `node`.
  """
  of = node_files.by_group(names)
  recorded = {group.name: group for group in graph.groups}
  every = [*recorded, *(label for label in of if label not in recorded)]
  columns = _columns(every, graph.flows)
  result = []
  for label in every:
    group = recorded.get(label) or Group(label, len(of[label]), '', '', graph.roles(label))
    mine = [states[name] for name in of.get(label, []) if name in states]
    counts = collections.Counter(state for state, _ in mine)
    known = [s for s in (BUSY, HELD, IDLE) if counts[s]]
    meters: dict[str, list[float]] = {}
    for _, pairs in mine:
      for meter, share in pairs:
        meters.setdefault(meter, []).append(share)
    result.append(
      {
        'name': label,
        'nodes': group.nodes,
        'runs': group.runs,
        'machine': group.machine,
        'roles': group.roles,
        'column': columns[label],
        'state': max(known, key=lambda s: counts[s]) if known else UNKNOWN,
        'counts': dict(counts),
        'meters': [[meter, sum(shares) / len(shares)] for meter, shares in meters.items()],
        'reports_only': all(
          f.what == 'reports' for f in graph.flows if label in (f.source, f.target)
        ),
      }
    )
  return result


def cells(
  states: Mapping[str, tuple[str, list[tuple[str, float]]]], restarts: Mapping[str, int], most: int
) -> list[tuple[str, str, float | None, int]]:
  """Returns the nodes that the page shows, as (name, state, share of the first meter, restarts).

  Of a group with more than `most` nodes they are the ones that have restarted, then those in the rarest
  states.
  """
  chosen: set[str] = set()
  for names in node_files.by_group(states).values():
    if len(names) > most:
      counts = collections.Counter(states[name][0] for name in names)
      names = sorted(names, key=lambda name: (name not in restarts, counts[states[name][0]]))[:most]
    chosen.update(names)
  return [
    (name, state, meters[0][1] if meters else None, restarts.get(name, 0))
    for name, (state, meters) in states.items()
    if name in chosen
  ]


def edges(
  graph: Graph, means: Mapping[str, Mapping[str, float]], logs: Mapping[str, NodeLog]
) -> list[dict[str, Any]]:
  """Returns what flows between the groups, with the rate per second; None where none is measured.

  Args:
    graph: the recorded graph.
    means: of each node's measurements over the last minute.
    logs: of each node.
  """

  def total(name: str) -> float | None:
    known = {node: values[name] for node, values in means.items() if name in values}
    # Inference nodes report what a learner apart from them reports of them all.
    learners = {node: rate for node, rate in known.items() if LEARNER in graph.roles(node)}
    return sum((learners or known).values()) if known else None

  def grown(name: str) -> float | None:
    rates = [logs[node].recent.rate(name) for node, values in means.items() if name in values]
    known = [rate for rate in rates if math.isfinite(rate)]
    return sum(known) if known else None

  rates = {
    'rows': total('actor_steps_per_second'),
    'unrolls': grown('unrolls_inserted'),
    'batches': total('learner_steps_per_second'),
    'originals': total('relabelled_per_second'),
    'copies': total('relabelled_per_second'),
    'offline': grown('transitions_loaded'),
  }
  result = []
  for flow in graph.flows:
    if flow.what != 'reports':
      rate = None if EVALUATOR in graph.roles(flow.source) else rates.get(flow.what)
      result.append({'source': flow.source, 'target': flow.target, 'what': flow.what, 'rate': rate})
  return result


def _columns(labels: Sequence[str], flows: Sequence[Flow]) -> dict[str, int]:
  """Returns a column for each group: rows and unrolls flow to the right, batches where they can."""
  column = dict.fromkeys(labels, 0)
  forward = [f for f in flows if f.what not in _NOT_FORWARD]
  both_ways = {(f.target, f.source) for f in forward}
  forward += [f for f in flows if f.what == 'batches' and (f.source, f.target) not in both_ways]
  receives = {f.target for f in forward} | {f.source for f in forward}
  forward += [f for f in flows if f.what == 'parameters' and f.target not in receives]
  for _ in labels:
    for flow in forward:
      if flow.source in column and flow.target in column:
        after = max(column[flow.target], column[flow.source] + 1)
        column[flow.target] = min(after, len(labels) - 1)
  return column
