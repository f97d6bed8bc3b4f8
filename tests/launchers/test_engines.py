"""What holds for every engine."""

import math
import os
import re
import sys
from types import SimpleNamespace

import pytest
from absl import flags

from launchers import engine_flags, engines
from launchers.engine import Engine
from launchers.engines import Kubernetes, Local, Pod, Ray, SkyPilot, Slurm, Task, Threads
from programs import sebulba
from rundir import checkpoints
from tests.programs_under_test import launch, run_main

FLAGS = {
  'local': [],
  'ray': ['--launcher=ray'],
  'slurm': ['--launcher=slurm'],
  'k8s': ['--launcher=k8s', '--image=x'],
  'pod': ['--launcher=pod'],
  'skypilot': ['--launcher=skypilot', '--image=x'],
  'task': ['--launcher=task'],
}


def test_the_table_names_every_engine():
  assert engines.TABLE.keys() == FLAGS.keys()
  assert all(issubclass(engine, Engine) for engine in engines.TABLE.values())


@pytest.mark.parametrize(
  'words, engine',
  [
    ([], Local()),
    (['--isolate=no', '--lp_launch_type=local_mt'], Threads(isolate='no')),
    (['--launcher=ray', '--ray_timeout=9'], Ray(timeout=9.0)),
    (
      ['--launcher=slurm', '--slurm_cpu_nodes=2', '--slurm_options=--time=5', '--noslurm_wait'],
      Slurm(cpu_nodes=2, options='--time=5', wait=False),
    ),
    (
      ['--launcher=k8s', '--image=x', '--k8s_port=9000', '--k8s_egress=all,metadata'],
      Kubernetes(image='x', port=9000, egress=['all', 'metadata']),
    ),
    (['--launcher=pod', '--pod_group=actor', '--k8s_port=9000'], Pod(group='actor', port=9000)),
    (['--launcher=skypilot', '--image=x', '--sky_volume=v'], SkyPilot(image='x', volume='v')),
    (
      ['--launcher=task', '--task_group=actor', '--task_restarts=3', '--task_port=9000'],
      Task(group='actor', restarts=3, port=9000),
    ),
  ],
)
def test_the_flags_of_launch_and_the_fields_of_an_engine_are_the_same_options(words, engine):
  known = flags.FLAGS
  known.unparse_flags()
  for name in list(known):
    known[name].unparse()
  known(['launch.py', *words])
  assert engine_flags.chosen() == engine


@pytest.mark.parametrize(
  'make, words',
  [
    (lambda: Ray(timeout=-5), '--ray_timeout=-5 must be at least 0'),
    (lambda: Ray(timeout=math.nan), '--ray_timeout=nan must be a finite number'),
    (lambda: Ray(timeout='x'), "--ray_timeout='x' must be of type float"),
    (lambda: Slurm(cpu_nodes=0), '--slurm_cpu_nodes=0 must be at least 1'),
    (lambda: Slurm(cpu_nodes=True), '--slurm_cpu_nodes=True must be of type int'),
    (lambda: Slurm(requeue=1), '--slurm_requeue=1 must be of type bool'),
    (lambda: Local(isolate='yes'), "--isolate='yes' must be one of auto, require, no"),
    (lambda: Pod(port=80), '--k8s_port=80 must be at least 1024'),
  ],
)
def test_an_option_that_an_engine_cannot_have_is_rejected_by_the_name_of_its_flag(make, words):
  with pytest.raises(ValueError) as error:
    make()
  assert str(error.value) == f'{words}.'


def test_help_lists_the_flags_of_the_chosen_engine_alone():
  said = launch('--launcher=slurm', '--help').stdout
  assert '--slurm_cpu_nodes' in said and '--slurm_wait=true' in said
  assert '--ray_address' not in said and '--k8s_name' not in said and '--pod_group' not in said
  assert '--image' not in said


def test_help_lists_the_flags_that_engines_have_in_common_for_each():
  for launcher, own, other in (
    ('k8s', 'k8s_name', 'sky_name'),
    ('skypilot', 'sky_name', 'k8s_name'),
  ):
    said = launch(f'--launcher={launcher}', '--help').stdout
    assert f'--{own}' in said and '--image' in said and '--output' in said
    assert f'--{other}' not in said


@pytest.mark.parametrize('engine', FLAGS)
def test_a_preview_builds_the_graph_once_and_writes_nothing(engine, tmp_path, monkeypatch, capsys):
  built, make_program = [], sebulba.make_program
  monkeypatch.setattr(sebulba, 'make_program', lambda c: built.append(c) or make_program(c))
  monkeypatch.chdir(tmp_path)
  assert run_main('--dry_run', *FLAGS[engine]) == 0
  assert len(built) == 1
  assert 'program sebulba\n' in capsys.readouterr().out
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('flags', FLAGS.values())
def test_a_rejected_launch_leaves_no_directory(flags, tmp_path, monkeypatch, capsys):
  path = tmp_path / 'placement.yaml'
  path.write_text('actor: {resources: {CPU: 1}, one_job: true, accelerator: tpu, num_devices: 3}\n')
  monkeypatch.chdir(tmp_path)
  assert run_main(*flags, f'--placement={path}') == 2
  assert capsys.readouterr().err.startswith('error: ')
  assert os.listdir(tmp_path) == ['placement.yaml']


@pytest.mark.parametrize(
  'flags', [[], ['--launcher=ray', '--ray_timeout=9.0', '--node_timeout=40.0']]
)
def test_the_command_that_resumes_a_run_has_the_flags_of_its_launch(
  flags, tmp_path, monkeypatch, capsys
):
  def fail(self, job, callbacks):
    checkpoints.write(checkpoints.directory(job.run_dir), {'learner_steps': 1}, b'state', keep=1)
    return 1

  monkeypatch.setattr(Ray if flags else Local, 'launch', fail)
  assert run_main(f'--run_dir={tmp_path}/run', *flags) == 1
  said = capsys.readouterr().err.splitlines()[-1]
  expected = flags or ['--isolate=no']
  resume = f'--resume={tmp_path}/run'
  python = os.path.relpath(sys.executable)  # As the documentation has it: .venv/bin/python.
  assert said == ' '.join(['to resume:', python, 'launch.py', resume, *expected])


def test_a_run_whose_working_directory_is_removed_can_be_resumed(tmp_path, monkeypatch, capsys):
  def fail(self, job, callbacks):
    checkpoints.write(checkpoints.directory(job.run_dir), {'learner_steps': 1}, b'state', keep=1)
    os.rmdir(working)
    return 1

  working = tmp_path / 'working'
  working.mkdir()
  monkeypatch.chdir(working)
  monkeypatch.setattr(Local, 'launch', fail)
  assert run_main(f'--run_dir={tmp_path}/run') == 1
  said = capsys.readouterr().err.splitlines()[-1]
  launch = os.path.join(os.path.dirname(os.path.dirname(engines.__file__)), 'launch.py')
  assert said.startswith(f'to resume: {sys.executable} {launch} --resume={tmp_path}/run')


@pytest.mark.parametrize('code, stopped', [(130, True), (143, True), (1, False)])
def test_a_run_that_was_stopped_says_so_and_one_that_failed_does_not(
  tmp_path, monkeypatch, capsys, code, stopped
):
  monkeypatch.setattr(Local, 'launch', lambda self, job, callbacks: code)
  assert run_main(f'--run_dir={tmp_path}/run') == code
  said = capsys.readouterr().err
  found = re.search(rf'^stopped: seconds=[0-9.]+ run_dir={tmp_path}/run$', said, re.MULTILINE)
  assert bool(found) is stopped, said


@pytest.mark.parametrize('left', [[], ['notes.txt'], ['logs/actor-0.log']])
def test_a_launch_that_the_engine_rejects_leaves_no_file_and_removes_none(
  left, tmp_path, monkeypatch, capsys
):
  def reject(self, job, callbacks):
    for name in left:
      os.makedirs(os.path.dirname(os.path.join(job.run_dir, name)), exist_ok=True)
      with open(os.path.join(job.run_dir, name), 'w') as f:
        f.write('said')
    raise ValueError('no Ray cluster.')

  monkeypatch.setattr(Ray, 'launch', reject)
  flags = '--launcher=ray', f'--run_dir={tmp_path}'
  assert run_main(*flags) == 2
  assert capsys.readouterr().err.endswith('error: no Ray cluster.\n')
  assert all((tmp_path / name).exists() for name in left)
  assert (tmp_path / 'config.json').exists() == bool(left)
  assert run_main(*flags) == 2
  assert ('is not empty' in capsys.readouterr().err) == bool(left)


def test_a_run_whose_evaluation_is_far_below_its_training_ends_with_a_note(tmp_path, capsys):
  (tmp_path / 'summary.json').write_text(
    '{"evaluator_return": 0.1, "evaluator_return_stderr": 0.0}'
  )
  (tmp_path / 'logs').mkdir()
  (tmp_path / 'logs' / 'learner-0.csv').write_text('episodes,episode_return\n100,0.5\n')
  Local().conclude(SimpleNamespace(run_dir=str(tmp_path)), 0, 1.0)
  out, err = capsys.readouterr()
  assert out == f'done: evaluator_return=0.1 seconds=1.0 run_dir={tmp_path}\n'
  assert err.startswith(
    'note: the final evaluation returned 0.1, far below the 0.5 of the last 100'
  )
