"""Derives what flows between the groups of a graph; the graph itself holds only handles."""

from __future__ import annotations

from collections.abc import Mapping

import launchpad as lp

from launchers.graph import describe
from launchers.placement import Resources
from rundir.graph_file import Flow, Graph, Group

# Kinds of nodes, by the class that they run.
_KINDS = {
  'Actor': 'inference client',
  'Evaluator': 'inference client',
  'ImpalaActor': 'inference',
  'ImpalaEvaluator': 'parameter client',
  'InferenceLearner': 'inference-learner',
  'InferenceNode': 'inference',
  'LearnerNode': 'learner',
  'Relabeller': 'relabeller',
  'ReplayLoader': 'loader',
  'ReplayServer': 'replay',
  'Anakin': 'learner',
  'GossipInferenceLearner': 'inference-learner',
  'GossipPeer': 'learner',
  'AnakinEvaluator': 'parameter client',
  'Monitor': 'monitor',
}
_TO_OWNER, _TO_HOLDER = False, True
# What flows on a handle, by the kind of its holder and that of its owner, and in which direction.
_FLOWS = {
  ('inference client', 'inference-learner'): (('rows', _TO_OWNER),),
  ('inference client', 'inference'): (('rows', _TO_OWNER),),
  ('inference-learner', 'replay'): (('unrolls', _TO_OWNER), ('batches', _TO_HOLDER)),
  ('inference', 'replay'): (('unrolls', _TO_OWNER),),
  ('learner', 'replay'): (('batches', _TO_HOLDER),),
  ('relabeller', 'replay'): (('originals', _TO_HOLDER), ('copies', _TO_OWNER)),
  ('loader', 'replay'): (('offline', _TO_OWNER),),
  ('relabeller', 'inference-learner'): (('parameters', _TO_HOLDER),),
  ('relabeller', 'learner'): (('parameters', _TO_HOLDER),),
  ('inference', 'learner'): (('parameters', _TO_HOLDER),),
  ('learner', 'learner'): (('parameters', _TO_OWNER),),
  ('inference-learner', 'inference-learner'): (('parameters', _TO_OWNER),),
  ('parameter client', 'learner'): (('parameters', _TO_HOLDER),),
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
    return (('reports', _TO_OWNER),)
  return _FLOWS.get(kinds, (('calls', _TO_OWNER),))
