"""--offline_data: what is refused before anything starts, and the graph of what is not."""

import numpy as np
import pytest

from nodes.unrolls import transitions
from nodes.unrolls.table_names import OFFLINE, ORIGINALS, RELABELLED
from programs import check, qt_opt
from programs.options import configs
from rundir import recorded_unrolls
from tests.programs_under_test import run_main

QT_OPT = ('--program=qt_opt', '--env=gymnasium:Pendulum-v1')


def record(run_dir, count=50, observation=(3,), action='float32'):
  """Records `count` unrolls of three rows, of two transitions each."""
  columns = {
    'timestep/step_type': np.ones((count, 3), np.uint8),
    'timestep/reward': np.zeros((count, 3), np.float32),
    'timestep/discount': np.ones((count, 3), np.float32),
    'timestep/observation': np.zeros((count, 3, *observation), np.float32),
    'action': np.zeros((count, 3, 1), action),
    'unroll_id': np.arange(count),
  }
  layout = {name: (column.shape[1:], column.dtype.name) for name, column in columns.items()}
  recorded_unrolls.begin(str(run_dir), recorded_unrolls.Format(3, layout))
  recorded_unrolls.write_chunk(str(run_dir), columns)
  return str(run_dir)


def config(**options):
  return configs.make_config(qt_opt, options)


def test_data_that_cannot_be_loaded_are_rejected_in_one_sentence(tmp_path, capsys):
  (tmp_path / 'empty').mkdir()
  wide = record(tmp_path / 'wide', observation=(4,))
  discrete = record(tmp_path / 'discrete', action='int32')
  good = record(tmp_path / 'good')
  for path, problem in (
    (tmp_path / 'nowhere', 'nowhere does not exist; name the directory of a run.'),
    (tmp_path / 'empty', 'empty has no recorded unrolls; name a run that had --record_unrolls.'),
    (
      wide,
      "has recorded float32[4] as observation, but this environment's is float32[3]; name a run",
    ),
    (discrete, "has recorded int32[1] as action, but this environment's is float32[1]"),
    (f'{good},{wide}', 'wide has recorded'),
  ):
    run_dir = tmp_path / 'run'
    assert run_main(*QT_OPT, f'--offline_data={path}', f'--run_dir={run_dir}') == 2
    error = capsys.readouterr().err
    assert error.startswith('error: --offline_data=') and error.count('\n') == 1
    assert problem in error
    assert not run_dir.exists()
  k8s = ('--launcher=k8s', '--image=x', '--output=y')
  assert run_main(*QT_OPT, f'--offline_data={good}', *k8s) == 2
  assert f'error: --offline_data={good} is on this machine' in capsys.readouterr().err


@pytest.mark.parametrize(
  'options, message',
  [
    ({'bellman_updaters': 0}, '--offline_data needs the Bellman updaters'),
    ({'unroll_length': 4}, '--unroll_length=4 needs more rows'),
    ({'frame_stack': 2}, '--frame_stack=2 needs more rows'),
    ({'online_share': 1.5}, '--online_share is 1.5: set it to a number from 0 to 1'),
    ({'offline_size': 1, 'num_replay_shards': 2}, 'gives 1 transitions for 2 replay servers'),
  ],
)
def test_options_that_do_not_fit_are_rejected(tmp_path, options, message):
  with pytest.raises(ValueError, match=message):
    config(offline_data=record(tmp_path), **options)


def test_updaters_read_a_third_table_that_the_loader_fills(tmp_path):
  first, second = record(tmp_path / 'first'), record(tmp_path / 'second', count=21)
  assert transitions.count([first, second]) == 142
  options = config(
    offline_data=f'{first},{second}',
    num_replay_shards=4,
    online_share=0.3,
    run_dir=str(tmp_path / 'run'),
  )
  program = qt_opt.make_program(options)
  placement = qt_opt.placement(options)
  check.check(program, placement)
  assert placement['replay_loader'].with_launcher
  ((loader,),) = [nodes for label, nodes in program.groups.items() if label == 'replay_loader']
  *_, loading = loader._args
  assert (loading.run_dirs, loading.recorded, loading.wanted) == ((first, second), 142, 142)
  ((relabeller,),) = [nodes for label, nodes in program.groups.items() if label == 'relabeller']
  *_, relabelling = relabeller._args
  assert [source.table for source in relabelling.sources] == [ORIGINALS, OFFLINE]
  assert relabelling.batch_size == options.replay.batch_size == relabelling.sources[1].unrolls
  assert (relabelling.online_share.final, relabelling.online_share.ramp_steps) == (0.3, 2_000)
  tables = program.groups['replay'][0]._args[0]
  assert [table.name for table in tables] == [ORIGINALS, RELABELLED, OFFLINE]
  assert (tables[2].max_size, tables[2].rate_limiter.min_size_to_sample) == (36, 35)


def test_without_the_flag_there_is_no_loader_and_a_run_records_where_its_flag_says(tmp_path):
  options = config(run_dir=str(tmp_path), record_unrolls=True, record_gigabytes=0.5)
  assert 'replay_loader' not in qt_opt.make_program(options).groups
  assert 'replay_loader' not in qt_opt.placement(options)
  assert options.sinks.recording == recorded_unrolls.RecordingOptions(str(tmp_path), 500_000_000)
  assert config().sinks.recording is None
