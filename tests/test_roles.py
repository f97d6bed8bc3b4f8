"""A program whose groups have other names: only the roles in its graph say what its nodes do."""

import json
import math
import pathlib
import signal
import types

import launchpad as lp
import pytest
from absl.testing import flagsaver

import evaluate
from agents.options import make
from launchers.graph import flow
from launchers.program import Program
from programs import profile
from rundir import curves, graph_file, run_end
from tests.programs_under_test import DONE, ENDLESS, ROOT, log_text
from tests.users import renamed
from viewing import screen
from viewing.progress import Progress
from viewing.trackers.stream import Stream
from viewing.web.state import State

PROGRAM = f'--program={ROOT}/tests/users/renamed.py:make_program'


def test_a_program_with_other_names_is_watched_evaluated_and_resumed(start_program, train, capsys):
  program = start_program(
    PROGRAM, ENDLESS, '--checkpoint_period=1', '--eval_period=200', '--eval_episodes=8'
  )
  run_dir = program.run_dir
  program.wait_for_progress()
  names = {group.name for group in graph_file.read(run_dir).groups}
  assert names == {'scribe', 'memory', 'trainer', 'player', 'judge'}
  program.wait_until(lambda: len(curves.evaluator_returns(run_dir)) > 2, 'evaluations')
  program.wait_until(lambda: curves.training_returns(run_dir), 'training episodes')
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  steps = program.checkpoint_counts()['actor_steps']
  _assert_watched(run_dir)
  program.wait_until(lambda: ' learner_steps=' in program.printed(), 'the view has the monitor')
  program.launcher.send_signal(signal.SIGINT)
  code, _, errors = program.end()
  assert code == 130 and 'Traceback' not in errors + log_text(pathlib.Path(run_dir))

  process = train(f'--resume={run_dir}', f'--num_steps={steps + 2000}', timeout=240)
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert int(done[2]) >= steps + 2000 and math.isfinite(float(done[1]))
  summary = run_end.read_summary(run_dir)
  assert summary['evaluator_return'] == curves.evaluator_returns(run_dir)[-1][1]
  assert 'trainer/0' in summary['learners']
  assert evaluate.main([run_dir, '--episodes=4']) == 0
  assert 'return ' in capsys.readouterr().out


def _assert_watched(run_dir):
  """Asserts what watch.py shows of a run, in text, on the page and in an export."""
  run = Progress(run_dir)
  assert run.training and run.evaluation
  assert run.status['verdict'].bottleneck != 'unknown'
  assert ' steps/s=' in screen.line(run) and ' evaluator_return=' in screen.line(run)

  page = json.loads(json.dumps(State([run_dir]).read(), allow_nan=False))
  (shown,), (curve,) = page['runs'], page['curves']
  assert {'evaluation', 'checkpoint'} <= {event['kind'] for event in shown['timeline']}
  assert {event['node'] for event in shown['timeline']} <= {'judge/0', 'trainer/0', 'memory/0'}
  assert curve['kind'] == 'evaluator' and len(curve['lines'][0][0]) > 1
  rates = {(e['source'], e['what'], e['target']): e['rate'] for e in shown['edges']}
  assert rates['player', 'rows', 'trainer'] > 0 and rates['judge', 'rows', 'trainer'] is None
  assert {('trainer', 'unrolls', 'memory'), ('memory', 'batches', 'trainer')} <= rates.keys()
  assert [g['name'] for g in shown['groups'] if g['reports_only']] == ['scribe']

  # Evaluations are exported one by one, whatever the length of a mean.
  records = Stream(run_dir, every=3600.0, cursor={}).read(flush=True)
  assert sum(getattr(r, 'prefix', '') == 'judge/0' for r in records) >= 3


def test_only_nodes_that_use_jax_are_profiled_whatever_their_name():
  config = make(renamed.Config, run_dir='x').resolve()
  program, placement = renamed.make_program(config), renamed.placement(config)
  engine = types.SimpleNamespace(sends_nodes=True)

  def profiled(node):
    with flagsaver.as_parsed(profile=f'{node}:5'):
      return profile.profiled(program, placement, 'x', engine)

  assert profiled('trainer/0')['trainer'].env != placement['trainer'].env
  for node in ('player/0', 'judge/0', 'scribe/0', 'memory/0'):
    with pytest.raises(ValueError, match='does not use JAX; profile it with py-spy'):
      profiled(node)


@pytest.mark.parametrize('options', [{}, {'inference_nodes': 2}, {'num_replicas': 2}])
def test_what_flows_does_not_depend_on_names(options):
  found = []
  for module in (renamed.sebulba, renamed):
    config = make(module.Config, run_dir='x', **options).resolve()
    graph = flow.graph(module.make_program(config), module.placement(config))
    names = {group.name: renamed.NAMES.get(group.name, group.name) for group in graph.groups}
    found.append({(names[f.source], f.what, names[f.target]) for f in graph.flows})
    assert all(group.roles for group in graph.groups)
  assert found[0] == found[1] and 'calls' not in {what for _, what, _ in found[0]}


def test_a_role_that_does_not_exist_is_refused():
  with pytest.raises(ValueError, match="group 'mine': no role is called 'lerner'; did you mean"):
    Program('mine').add_node(lp.PyClassNode(object), label='mine', roles=['lerner'])
  with (
    pytest.raises(ValueError, match="no role is called 'monitors'"),
    Program('mine').group('mine', sends={'reports': 'monitors'}),
  ):
    pass
