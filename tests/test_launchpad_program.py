"""Launchpad programs without a config, by launch.py and by `launchers.launch`."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading

import launchpad as lp
import pytest

import evaluate
import launchers
from benchmarks.running import processes
from launchers.engines import Kubernetes
from launchers.placement import Resources
from programs import registry
from programs.launchpad_program import takes_config
from programs.options import flags as config_flags
from rundir import run_end
from tests.launchers import nodes
from tests.programs_under_test import ROOT, launch

LAUNCHPADS = pathlib.Path(lp.__file__).parent / 'examples'
WAIT = LAUNCHPADS / 'program_wait' / 'launch.py'
PRIMES = ROOT / 'examples' / 'primes.py'


@pytest.fixture
def mine(tmp_path):
  """Writes a file with a function make_program of some parameters; returns the value of --program."""

  def write(parameters, body='pass', more=''):
    path = tmp_path / 'mine.py'
    path.write_text(
      f'import launchpad as lp\n{more}\ndef make_program({parameters}):\n'
      + textwrap.indent(textwrap.dedent(body), '  ')
    )
    return f'{path}:make_program'

  return write


@pytest.mark.parametrize(
  'function, expected',
  [
    (lambda config: 0, True),
    (lambda config, more=1: 0, True),
    (lambda num_workers=2: 0, False),
    (lambda: 0, False),
    (lambda *args, **kwargs: 0, False),
    (lambda *, a: 0, False),
    (lambda a, b: 0, False),
  ],
)
def test_the_signature_says_whether_a_function_takes_a_config(function, expected):
  assert takes_config(function) is expected


@pytest.mark.parametrize('annotation', ['int', '"int"', 'tuple[int, ...]', 'str'])
def test_a_parameter_with_the_type_of_a_flag_is_no_config(annotation):
  scope = {}
  exec(f'def f(num_workers: {annotation}): pass', scope)
  assert not takes_config(scope['f'])


def test_parameters_become_options_and_reach_the_function(mine):
  body = """
    program = lp.Program('mine')
    for label in (f'{name}-{fast}-{rate}-{sizes}-{count}', run_dir):
      program.add_node(lp.PyNode(print), label=label)
    return program
  """
  parameters = "count=1, /, fast=False, rate=0.5, name='x', *, sizes=(1, 2), run_dir=''"
  program = registry.load(mine(parameters, body))
  assert not registry.learns(program)
  defaults = {f.name: f.default for f in dataclasses.fields(program.Config)}
  assert defaults == {
    'count': 1,
    'fast': False,
    'rate': 0.5,
    'name': 'x',
    'sizes': (1, 2),
    'run_dir': '',
  }
  config = program.make_config({'fast': True, 'sizes': ['3', '4'], 'count': 7, 'run_dir': 'here'})
  assert [*program.make_program(config).groups] == ['x-True-0.5-(3, 4)-7', 'here']
  assert program.placement(config)['here'] == Resources()
  with pytest.raises(ValueError, match=r'--sizes=3,x must be whole numbers'):
    program.make_config({'sizes': ['3', 'x']})


def test_a_parameter_without_a_default_must_be_given():
  program = registry.load(f'{LAUNCHPADS}/consumer_producers/program.py:make_program')
  groups = program.make_program(program.make_config({'num_producers': 3})).groups
  assert {label: len(nodes) for label, nodes in groups.items()} == {'producer': 3, 'consumer': 1}
  with pytest.raises(ValueError, match=r'^--num_producers is missing: .* type int\.$'):
    program.make_config({})


def test_a_program_may_place_some_of_its_groups(mine):
  more = """
from launchers.engines import Kubernetes
from launchers.placement import Resources
def placement(config):
  return {'a': Resources(cpus=config.cpus)}
"""
  body = """
    program = lp.Program('mine')
    program.add_node(lp.PyNode(print), label='a')
    program.add_node(lp.PyNode(print), label='b')
    return program
  """
  program = registry.load(mine('cpus=2.0', body, more))
  placed = program.placement(program.make_config({}))
  assert placed == {'a': Resources(cpus=2.0), 'b': Resources()}


@pytest.mark.parametrize(
  'parameters, words',
  [
    ('sizes: tuple', ['parameter sizes has no default', '--sizes']),
    ('a, b', ['parameter a has no default']),
    ('steps=None', ['parameter steps has the default None']),
    ('sizes=(1, 0.5)', ['parameter sizes has the default (1, 0.5)', 'a tuple of ints']),
    ('names=["x"]', ['parameter names has the default']),
    ('run_dir=1', ['parameter run_dir gets the run directory']),
    ('launcher="x"', ['parameter launcher clashes with a flag', 'rename it']),
    ('verbosity=1', ['parameter verbosity clashes with a flag']),
  ],
)
def test_a_parameter_that_no_flag_can_give_is_rejected_in_one_sentence(mine, parameters, words):
  with pytest.raises(ValueError) as error:
    config_flags.define(mine(parameters))
  text = str(error.value)
  assert text.startswith('--program=') and '\n' not in text
  for word in words:
    assert word in text


@pytest.mark.parametrize(
  'body, words',
  [
    ('return 3', 'must return an lp.Program, not int'),
    ('raise KeyError("x")', 'calling it raised KeyError'),
  ],
)
def test_a_function_that_makes_no_program_is_rejected(mine, body, words):
  program = registry.load(mine('', body))
  with pytest.raises(ValueError, match=words):
    program.make_program(program.make_config({}))


def _refused(*flags):
  process = launch(*flags)
  assert process.returncode == 2, process.stdout
  assert process.stderr.startswith('error: ') and process.stderr.count('\n') == 1
  return process.stderr


@pytest.mark.slow
def test_flags_of_learning_programs_are_rejected_and_those_of_the_launcher_are_not(tmp_path):
  program = f'--program={PRIMES}:make_program'
  said = _refused(program, '--num_workers=3', '--num_steps=5')
  assert '--num_steps is for programs that learn' in said and '--num_workers, --limit' in said
  assert '--presets is for programs that learn' in _refused(program, '--presets')
  assert 'kubectl logs' in _refused(
    program, '--launcher=k8s', '--image=x', f'--output={tmp_path}', '--node_output=files'
  )
  picture = tmp_path / 'graph.md'
  process = launch(program, '--dry_run', '--num_workers=3', f'--graph={picture}')
  assert process.returncode == 0, process.stderr
  assert re.search(r'worker +3 x CourierNode\(Worker\)', process.stdout)
  assert '\noptions: --num_workers=3 --limit=20000 --part=5000\n' in process.stdout
  assert '3 x Worker' in picture.read_text()


@pytest.mark.slow
def test_the_manifests_of_a_launchpad_program_build_it_in_the_pods(tmp_path):
  process = launch(
    '--program=examples/primes.py:make_program',
    *('--launcher=k8s', '--image=x', '--num_workers=3', f'--output={tmp_path}'),
  )
  assert process.returncode == 0, process.stderr
  assert 'done:' not in process.stdout
  manifest = (tmp_path / 'jobset.yaml').read_text()
  assert '--program=examples/primes.py:make_program' in manifest and '--num_workers=3' in manifest
  assert '--env' not in manifest and '--cpu_cores' not in manifest


@pytest.mark.slow
def test_launchpads_example_of_waiting_runs_to_its_end_and_is_not_resumed(tmp_path, capsys):
  run_dir = tmp_path / 'run'
  process = launch(f'--program={WAIT}:make_program', f'--run_dir={run_dir}')
  assert process.returncode == 0, process.stderr
  lines = process.stdout.splitlines()
  for node in ('sleep', '_wait_for_stop', '_stop_event', '_register_stop_handler'):
    function = '_sleep' if node == 'sleep' else node
    pattern = rf'\[{node}/0\] I.*Clean termination of {function} node'
    assert any(re.fullmatch(pattern, line) for line in lines), process.stdout
  assert re.fullmatch(rf'done: seconds=[\d.]+ run_dir={run_dir}', lines[-1])
  assert processes(str(run_dir)) == []
  record = json.loads((run_dir / 'config.json').read_text())
  assert record['config'] == {'run_dir': str(run_dir)}
  said = _refused(f'--resume={run_dir}')
  assert f'--resume={run_dir} is a run of the Launchpad program launch' in said
  assert evaluate.main([str(run_dir)]) == 2
  assert 'no checkpoints or parameters' in capsys.readouterr().err
  watched = subprocess.run(
    [sys.executable, 'watch.py', str(run_dir)], cwd=ROOT, capture_output=True, text=True
  )
  assert watched.returncode == 0, watched.stderr
  assert watched.stdout.splitlines()[-1] == lines[-1]


_BROKEN = """
    program = lp.Program('mine')
    program.add_node(lp.CourierNode(Echo), label='echo')
    program.add_node(lp.PyNode(fail), label='broken')
    return program
"""
_FAIL = """
import os
class Echo:
  def hello(self): pass
def fail():
  if os.environ['LAUNCHPOD_RESTART_COUNT'] == '0':
    os.kill(os.getpid(), 9)
  raise RuntimeError('broken for good')
"""


@pytest.mark.slow
def test_a_node_that_fails_is_restarted_and_then_ends_the_program_with_its_traceback(
  tmp_path, mine
):
  placement, run_dir = tmp_path / 'placement.yaml', tmp_path / 'run'
  placement.write_text('broken: {restart: on_failure, max_restarts: 1}')
  process = launch(
    f'--program={mine("", _BROKEN, _FAIL)}', f'--placement={placement}', f'--run_dir={run_dir}'
  )
  assert process.returncode == 1
  assert '[broken/0] RuntimeError: broken for good' in process.stdout
  assert 'node broken/0 was killed by SIGKILL; restarting' in process.stderr
  assert process.stderr.rstrip().endswith('RuntimeError: broken for good')
  assert 'done:' not in process.stdout and run_end.end_of(str(run_dir))['exit_code'] == 1
  assert processes(str(run_dir)) == []


# The user's main, with its own flags; `lp.launch` is what it calls.
_DRIVER = """
import runpy, sys
import launchpad as lp
import launchers
run_dir = sys.argv.pop(1)
def launch(program):
  code = launchers.launch(program, run_dir=run_dir)
  sys.exit(code)
lp.launch = launch
runpy.run_module('launchpad.examples.consumer_producers.launch', run_name='__main__')
"""


@pytest.mark.slow
def test_launchpads_main_of_consumers_and_producers_runs_with_our_launch(tmp_path):
  run_dir = tmp_path / 'run'
  process = subprocess.run(
    [sys.executable, '-c', _DRIVER, str(run_dir), '--num_producers=3'],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    cwd=tmp_path,
    capture_output=True,
    text=True,
  )
  assert process.returncode == 0, process.stderr
  assert process.stdout.count('Results: [0, 1, 2]') == 10
  assert process.stdout.splitlines()[-1] == run_end.result(str(run_dir))
  assert (run_dir / 'graph.svg').exists() and processes(str(run_dir)) == []


def test_a_package_that_hides_one_of_ours_from_launch_is_named(tmp_path):
  (tmp_path / 'nodes').mkdir()
  (tmp_path / 'nodes' / '__init__.py').write_text('')
  (tmp_path / 'main.py').write_text('import launchers\nlaunchers.launch(None)')
  process = subprocess.run(
    [sys.executable, str(tmp_path / 'main.py')],
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
  )
  said = process.stderr.splitlines()[-1]
  assert said.startswith(f'ValueError: {tmp_path}/nodes/__init__.py hides the package nodes')


def test_a_main_that_finds_another_package_of_our_name_first_is_told_what_to_do(tmp_path):
  (tmp_path / 'agents.py').touch()
  code = f"""
import sys
sys.path.append({str(ROOT)!r})
import launchpad as lp
import launchers
program = lp.Program('mine')
program.add_node(lp.PyNode(print), label='print')
launchers.launch(program, run_dir={str(tmp_path / 'run')!r})
"""
  process = subprocess.run(
    [sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True
  )
  assert process.returncode == 1
  said = process.stderr.splitlines()[-1]
  assert 'agents.py hides the package agents' in said and f'put {ROOT} before' in said


def test_launch_defines_no_flags_that_could_clash_with_those_of_the_user():
  code = 'import launchers.calling; from absl import flags; print("isolate" in flags.FLAGS)'
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
  )
  assert done.stdout == 'False\n'


@pytest.mark.parametrize(
  'options, words',
  [
    ({'engine': Kubernetes(image='x')}, 'put make_program() into a file, and run launch.py'),
    ({'engine': 'slurm'}, "needs an engine such as launchers.engines.Slurm(), not 'slurm'"),
    ({'node_output': 'screen'}, "node_output='screen' is none of files, terminal"),
    ({'node_timeout': 0.5}, 'node_timeout=0.5 must be a number of seconds from 1 to 1e+07'),
    ({'node_timeout': 1e300}, 'node_timeout=1e+300 must be a number'),
    ({'resources': {'x': Resources()}}, "there is no group 'x'; there are: echo"),
    ({'resources': {'echo': {'cpus': 1}}}, "group 'echo' has a dict"),
    ({'run_dri': 'x'}, "unexpected keyword argument 'run_dri'"),
  ],
)
def test_launch_rejects_wrong_arguments_before_it_writes_anything(
  tmp_path, monkeypatch, options, words
):
  monkeypatch.chdir(tmp_path)
  with pytest.raises((ValueError, TypeError)) as error:
    launchers.launch(nodes.program(), **options)
  assert words in str(error.value) and '\n' not in str(error.value)
  assert list(tmp_path.iterdir()) == []


def test_launch_rejects_graphs_that_cannot_run_and_other_threads(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  program = lp.Program('test')
  program.add_node(lp.PyNode(print, threading.Lock()), label='a')
  with pytest.raises(ValueError, match='node a/0 cannot be sent to a separate process'):
    launchers.launch(program)
  with pytest.raises(ValueError, match='has no nodes'):
    launchers.launch(lp.Program('empty'))
  with pytest.raises(TypeError, match=r'needs an lp\.Program, not a str'):
    launchers.launch('test')
  refusals = []

  def call():
    try:
      launchers.launch(nodes.program())
    except ValueError as error:
      refusals.append(str(error))

  thread = threading.Thread(target=call)
  thread.start()
  thread.join()
  assert 'main thread' in refusals[0] and list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_a_program_that_launch_runs(tmp_path):
  code = f"""
import sys, launchers
from tests.launchers import nodes
sys.exit(launchers.launch(nodes.program((nodes.Blocked, True, {str(tmp_path / 'pid')!r})),
                          run_dir={str(tmp_path / 'run')!r}))
"""
  process = subprocess.Popen(
    [sys.executable, '-c', code],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  try:
    for line in process.stdout:  # The server is up; the other node may not be.
      if 'Binding: wait_for_ever' in line:
        break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
  finally:
    process.kill()
  assert process.returncode == 130 and 'Traceback' not in output + errors
  assert errors.splitlines()[-1] == f'stopped: run_dir={tmp_path}/run'
  assert processes(str(tmp_path / 'run')) == []
