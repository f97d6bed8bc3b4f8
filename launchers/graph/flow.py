"""Derives what flows between the groups of a graph; the graph itself holds only handles."""

from __future__ import annotations

from collections.abc import Mapping

import launchpad as lp

from launchers.graph import describe
from launchers.placement import Resources
from rundir.graph_file import Flow, Graph, Group

# Kinds of nodes, by the class that they run.
_KINDS = {
  'Actor': 'player',
  'Evaluator': 'player',
  'ImpalaActor': 'acting',
  'ImpalaEvaluator': 'tester',
  'InferenceLearner': 'both',
  'InferenceWorker': 'acting',
  'LearnerNode': 'learner',
  'Relabeller': 'relabeller',
  'ReplayLoader': 'loader',
  'ReplayServer': 'replay',
  'Anakin': 'learner',
  'GossipInferenceLearner': 'both',
  'GossipPeer': 'learner',
  'AnakinEvaluator': 'tester',
  'Monitor': 'monitor',
}
# What flows on a handle from one kind to another; True if it flows to the holder of the handle.
_FLOWS = {
  ('player', 'both'): (('rows', False),),
  ('player', 'acting'): (('rows', False),),
  ('both', 'replay'): (('unrolls', False), ('batches', True)),
  ('acting', 'replay'): (('unrolls', False),),
  ('learner', 'replay'): (('batches', True),),
  ('relabeller', 'replay'): (('originals', True), ('copies', False)),
  ('loader', 'replay'): (('offline', False),),
  ('relabeller', 'both'): (('parameters', True),),
  ('relabeller', 'learner'): (('parameters', True),),
  ('acting', 'learner'): (('parameters', True),),
  ('learner', 'learner'): (('parameters', False),),
  ('both', 'both'): (('parameters', False),),
  ('tester', 'learner'): (('parameters', True),),
}


def graph(program: lp.Program, placement: Mapping[str, Resources]) -> Graph:
  """Returns the groups of a program and the flows between them.

  A handle between classes of the user's own is a flow of 'calls', from its holder to its owner.
  """
  runs = {label: describe.what_runs(nodes[0]) for label, nodes in program.groups.items()}
  groups = tuple(
    Group(label, len(nodes), runs[label], placement[label].describe())
    for label, nodes in program.groups.items()
  )
  ours = {
    label: runs[label] for label, nodes in program.groups.items() if describe.is_ours(nodes[0])
  }
  flows: list[Flow] = []
  for source, target in describe.edges(program):
    for what, back in _on_a_handle(ours.get(source, ''), ours.get(target, '')):
      flows.append(Flow(target, source, what) if back else Flow(source, target, what))
  return Graph(groups, tuple(flows))


def _on_a_handle(holder: str, owner: str) -> tuple[tuple[str, bool], ...]:
  kinds = _KINDS.get(holder, ''), _KINDS.get(owner, '')
  if kinds[1] == 'monitor':
    return (('reports', False),)
  return _FLOWS.get(kinds, (('calls', False),))
