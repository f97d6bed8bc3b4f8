import json

import launchpad as lp
import pytest

from agents.options import make
from launchers.graph import flow
from launchers.placement import Resources
from launchers.program import Program
from programs import registry
from rundir import graph_file


def flows(name, **options):
  program = registry.load(name)
  config = make(program.Config, run_dir='x', **options).resolve()
  graph = flow.graph(program.make_program(config), program.placement(config))
  return graph, {(f.source, f.what, f.target) for f in graph.flows if f.what != 'reports'}


@pytest.mark.parametrize(
  'name, options, found',
  [
    (
      'sebulba',
      {},
      {
        ('actor', 'rows', 'inference_learner'),
        ('evaluator', 'rows', 'inference_learner'),
        ('inference_learner', 'unrolls', 'replay'),
        ('replay', 'batches', 'inference_learner'),
      },
    ),
    (
      'sebulba',
      {'inference_nodes': 2},
      {
        ('actor', 'rows', 'inference'),
        ('evaluator', 'rows', 'inference'),
        ('inference', 'unrolls', 'replay'),
        ('replay', 'batches', 'learner'),
        ('learner', 'parameters', 'inference'),
      },
    ),
    (
      'impala',
      {},
      {
        ('actor', 'unrolls', 'replay'),
        ('replay', 'batches', 'learner'),
        ('learner', 'parameters', 'actor'),
        ('learner', 'parameters', 'evaluator'),
      },
    ),
    (
      'muzero',
      {'reanalyse_nodes': 1, 'reanalyse_share': 0.5},
      {
        ('actor', 'rows', 'inference_learner'),
        ('evaluator', 'rows', 'inference_learner'),
        ('inference_learner', 'unrolls', 'replay'),
        ('replay', 'batches', 'inference_learner'),
        ('replay', 'originals', 'relabeller'),
        ('relabeller', 'copies', 'replay'),
        ('inference_learner', 'parameters', 'relabeller'),
      },
    ),
    (
      'muzero',
      {'reanalyse_nodes': 1, 'reanalyse_share': 0.5, 'inference_nodes': 1},
      {
        ('actor', 'rows', 'inference'),
        ('evaluator', 'rows', 'inference'),
        ('inference', 'unrolls', 'replay'),
        ('replay', 'batches', 'learner'),
        ('learner', 'parameters', 'inference'),
        ('replay', 'originals', 'relabeller'),
        ('relabeller', 'copies', 'replay'),
        ('learner', 'parameters', 'relabeller'),
      },
    ),
    ('anakin', {}, {('anakin', 'parameters', 'evaluator')}),
    (
      'anakin',
      {'num_replicas': 2},
      {('anakin', 'parameters', 'anakin'), ('anakin', 'parameters', 'evaluator')},
    ),
    (
      'gala_sebulba',
      {},
      {
        ('actor', 'rows', 'inference_learner'),
        ('evaluator', 'rows', 'inference_learner'),
        ('inference_learner', 'unrolls', 'replay'),
        ('replay', 'batches', 'inference_learner'),
        ('inference_learner', 'parameters', 'inference_learner'),
      },
    ),
    (
      'evolution',
      {},
      {
        ('evolver', 'parameters, seeds', 'worker'),
        ('worker', 'returns', 'evolver'),
        ('evolver', 'parameters', 'evaluator'),
      },
    ),
    ('gala', {}, {('peer', 'parameters', 'peer'), ('peer', 'parameters', 'evaluator')}),
    (
      'population_sebulba',
      {},
      {
        ('actor', 'rows', 'member'),
        ('member', 'unrolls', 'replay'),
        ('replay', 'batches', 'member'),
        ('member', 'scores', 'leaderboard'),
        ('leaderboard', 'offspring', 'member'),
        ('leaderboard', 'parameters', 'evaluator'),
      },
    ),
    (
      'population',
      {},
      {
        ('member', 'scores', 'leaderboard'),
        ('leaderboard', 'offspring', 'member'),
        ('leaderboard', 'parameters', 'evaluator'),
      },
    ),
  ],
)
def test_data_may_flow_against_the_direction_of_calls(name, options, found):
  assert flows(name, **options)[1] == found


def test_a_node_of_the_users_own_says_what_it_receives():
  graph, found = flows('examples/mine.py:make_program')
  assert ('inference_learner', 'copies of unrolls', 'histogram') in found
  assert {group.name: group.nodes for group in graph.groups}['actor'] == 2


def test_a_stock_program_has_calls_and_no_roles():
  program = lp.Program('mine')
  server = program.add_node(lp.CourierNode(object), label='learner')
  program.add_node(lp.PyClassNode(object, server), label='actor')
  graph = flow.graph(program, {label: Resources() for label in program.groups})
  assert graph.flows == (graph_file.Flow('actor', 'learner', 'calls'),)
  assert not graph.roles('learner/0') and not graph.roles('actor/0')


def test_an_arrow_between_nodes_that_both_declare_it_is_one():
  program = Program('mine')
  with program.group('pupil', roles=['learner'], receives={'parameters': 'learner'}):
    pupil = program.add_node(lp.CourierNode(object))
  sends = {'parameters': 'learner', 'hints': 'learner'}
  node = lp.PyClassNode(object, pupil)
  program.add_node(node, label='teacher', roles=['learner'], sends=sends)
  graph = flow.graph(program, {label: Resources() for label in program.groups})
  assert graph.flows == (
    graph_file.Flow('teacher', 'pupil', 'parameters'),
    graph_file.Flow('teacher', 'pupil', 'hints'),
  )


def test_the_graph_is_read_as_it_was_written(tmp_path):
  graph, _ = flows('sebulba')
  graph_file.write(str(tmp_path), graph)
  assert graph_file.read(str(tmp_path)) == graph
  (tmp_path / 'graph.json').write_text('{')
  assert graph_file.read(str(tmp_path)) == graph_file.Graph((), ())


def test_runs_that_were_recorded_without_roles_have_those_of_the_classes_of_that_time(tmp_path):
  def read(**groups):
    groups = [
      {'name': name, 'nodes': 1, 'runs': runs, 'machine': 'CPU worker'}
      for name, runs in groups.items()
    ]
    (tmp_path / 'graph.json').write_text(json.dumps({'groups': groups, 'flows': []}))
    return graph_file.read(str(tmp_path))

  graph = read(actor='ImpalaActor', learner='LearnerNode', monitor='Monitor', peer='GossipPeer')
  assert graph.roles('actor/7') == ('actor', 'inference') and graph.roles('learner') == ('learner',)
  assert graph.roles('monitor/0') == ('monitor',) and graph.roles('peer/1') == ('actor', 'learner')
  own = read(actor='Player', monitor='Screen')  # Classes of the user's.
  assert not own.roles('actor/0') and not own.roles('monitor/0') and not own.roles('learner/0')
  (tmp_path / 'graph.json').unlink()
  unknown = graph_file.read(str(tmp_path))
  assert unknown.roles('inference_learner/0') == ('inference', 'learner')
  assert unknown.roles('evaluator/0') == ('evaluator',) and not unknown.roles('judge/0')
