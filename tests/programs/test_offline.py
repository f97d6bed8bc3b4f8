"""Recorded data: what is refused before anything starts, and the graphs of what is not."""

import numpy as np
import pytest

from nodes.unrolls import transitions
from nodes.unrolls.table_names import OFFLINE, ORIGINALS, RELABELLED
from programs import check, offline, qt_opt
from programs.options import configs
from rundir import recorded_unrolls
from tests.programs_under_test import run_main

QT_OPT = ('--program=qt_opt', '--env=gymnasium:Pendulum-v1')


def record(run_dir, count=50, observation=(3,), action='float32', shape=(1,)):
  """Records `count` unrolls of three rows, of two transitions each."""
  columns = {
    'timestep/step_type': np.ones((count, 3), np.uint8),
    'timestep/reward': np.zeros((count, 3), np.float32),
    'timestep/discount': np.ones((count, 3), np.float32),
    'timestep/observation': np.zeros((count, 3, *observation), np.float32),
    'action': np.zeros((count, 3, *shape), action),
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


OFFLINE_FLAGS = ('--program=offline', '--env=gymnasium:Pendulum-v1')


def test_a_program_without_actors_needs_data_that_fit(tmp_path, capsys):
  assert run_main(*OFFLINE_FLAGS, '--dry_run') == 2
  assert 'error: --offline_data is missing: name the runs' in capsys.readouterr().err
  wide = record(tmp_path / 'wide', observation=(4,))
  assert run_main(*OFFLINE_FLAGS, f'--offline_data={wide}', '--dry_run') == 2
  assert 'has recorded float32[4] as observation' in capsys.readouterr().err
  good = record(tmp_path / 'good')
  assert run_main(*OFFLINE_FLAGS, f'--offline_data={good}', '--agent=avril', '--dry_run') == 2
  assert '--agent=bc or qt_opt' in capsys.readouterr().err
  assert run_main(*OFFLINE_FLAGS, f'--offline_data={good}', '--dry_run') == 0
  assert 'about 5,000 updates' in capsys.readouterr().out


@pytest.mark.parametrize('agent', offline.AGENTS)
def test_its_learner_reads_the_table_that_the_loader_fills_and_counts_transitions(tmp_path, agent):
  env, played = 'gymnasium:Pendulum-v1', {}
  if agent == 'avril':
    env, played = 'cartpole', {'observation': (4,), 'action': 'int32', 'shape': ()}
  path = record(tmp_path / 'recorded', **played)
  options = configs.make_config(
    offline,
    {
      'agent': agent,
      'env': env,
      'offline_data': path,
      'offline_size': 90,
      'num_replay_shards': 2,
      'batch_size': 32,
      'num_steps': 64_000,
      'run_dir': str(tmp_path / 'run'),
    },
  )
  program, placement = offline.make_program(options), offline.placement(options)
  check.check(program, placement)
  assert [*program.groups] == ['monitor', 'replay', 'learner', 'replay_loader', 'evaluator']
  assert placement['replay_loader'].with_launcher
  for server in program.groups['replay']:
    (table,) = server._args[0]
    assert (table.name, table.max_size, table.rate_limiter.min_size_to_sample) == (OFFLINE, 45, 45)
  (learner,) = program.groups['learner']
  training = learner._args[-1]
  assert [tuple(part) for part in training.batch_parts] == [(OFFLINE, 32)]
  assert training.steps_per_update == 32
  assert options.expected().updates == 2_000
