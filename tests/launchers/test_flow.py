import pytest

from agents.options import make
from launchers.graph import flow
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
    ('gala', {}, {('peer', 'parameters', 'peer'), ('peer', 'parameters', 'evaluator')}),
  ],
)
def test_data_may_flow_against_the_direction_of_calls(name, options, found):
  assert flows(name, **options)[1] == found


def test_a_node_of_the_users_own_is_called():
  graph, found = flows('examples/mine.py:make_program')
  assert ('inference_learner', 'calls', 'histogram') in found
  assert {group.name: group.nodes for group in graph.groups}['actor'] == 2


def test_the_graph_is_read_as_it_was_written(tmp_path):
  graph, _ = flows('sebulba')
  graph_file.write(str(tmp_path), graph)
  assert graph_file.read(str(tmp_path)) == graph
  (tmp_path / 'graph.json').write_text('{')
  assert graph_file.read(str(tmp_path)) == graph_file.Graph((), ())
