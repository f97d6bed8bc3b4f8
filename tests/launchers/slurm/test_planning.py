"""What the Slurm launcher asks Slurm for, as text and arithmetic."""

import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from environments import entry
from launchers import disk_space
from launchers.engine import Job
from launchers.heartbeat import Beat
from launchers.placement import Resources
from launchers.slurm import planning, probe, step, submit
from launchers.slurm.engine import Slurm
from launchers.slurm.planning import Component, Slot
from launchers.stop_requests import STACKS
from rundir import run_directory
from tests.agents.subprocesses import run_python
from tests.launchers import nodes
from tests.programs_under_test import launch
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent

GROUPS = {'monitor': 1, 'replay': 1, 'learner': 1, 'actor': 3}
MONITOR = Resources(cpus=0, with_launcher=True)
LEARNER = Resources(accelerator='tpu', num_devices=4, cpus=8, memory_gb=32)


def _placement(**changed):
  return {label: Resources() for label in GROUPS} | {'monitor': MONITOR} | changed


def test_groups_with_an_accelerator_have_hosts_of_their_own_and_the_launcher():
  plan = planning.plan(GROUPS, _placement(learner=LEARNER), Slurm(cpu_nodes=2))
  assert plan.components == (
    Component(hosts=1, cpus=8, memory_mb=32768, gres='tpu:4', constraint=''),
    Component(hosts=2, cpus=2, memory_mb=0, gres='', constraint=''),
  )
  assert plan.slots == {
    'monitor': [Slot(0, 0)],
    'replay': [Slot(1, 0)],
    'learner': [Slot(0, 0)],
    'actor': [Slot(1, 1), Slot(1, 0), Slot(1, 1)],
  }


def test_without_accelerators_there_is_one_component():
  plan = planning.plan(GROUPS, _placement(), Slurm())
  assert plan.components == (Component(hosts=1, cpus=5, memory_mb=0, gres='', constraint=''),)
  assert {slot for slots in plan.slots.values() for slot in slots} == {Slot(0, 0)}


def test_each_node_with_an_accelerator_has_a_host():
  learner = Resources(accelerator='gpu', devices=(0, 1))
  plan = planning.plan({'learner': 3}, {'learner': learner}, Slurm())
  assert plan.components == (Component(hosts=3, cpus=1, memory_mb=0, gres='gpu:2', constraint=''),)
  assert plan.slots == {'learner': [Slot(0, 0), Slot(0, 1), Slot(0, 2)]}


def test_no_more_cpu_hosts_are_requested_than_there_are_nodes():
  plan = planning.plan({'actor': 2}, {'actor': Resources()}, Slurm(cpu_nodes=9))
  assert plan.components[0].hosts == 2


def test_a_program_of_nodes_beside_the_launcher_has_one_host():
  plan = planning.plan({'monitor': 2}, {'monitor': MONITOR}, Slurm())
  assert plan.components == (Component(hosts=1, cpus=1, memory_mb=0, gres='', constraint=''),)
  assert plan.slots == {'monitor': [Slot(0, 0)] * 2}


def test_groups_with_other_labels_have_a_component_of_their_own():
  actor = Resources(cpus=1.5, memory_gb=0.5, labels={'cpu': 'zen4', 'net': 'ib'})
  plan = planning.plan(GROUPS, _placement(actor=actor), Slurm())
  assert plan.components == (
    Component(hosts=1, cpus=2, memory_mb=0, gres='', constraint=''),
    Component(hosts=1, cpus=5, memory_mb=1536, gres='', constraint='zen4&ib'),
  )


def test_the_batch_script():
  options = Slurm(
    options='--time=60 --comment="two words"',
    accelerator_options='--partition=tpu',
    cpu_options='--partition=cpu',
  )
  actor = Resources(memory_gb=2, labels={'pool': 'workers'})
  placement = _placement(learner=LEARNER, replay=actor, actor=actor)
  plan = planning.plan(GROUPS, placement, options)
  script = planning.script(plan, options, 'sebulba', '/runs/50% of it', '/env/python', '/code')
  command = entry.command('/env/python', 'launchers.slurm.allocation')
  assert script == (
    '#!/bin/sh\n'
    "#SBATCH --job-name=sebulba '--output=/runs/50%% of it/slurm.log' --open-mode=append\n"
    '#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=8 --no-requeue --mem=32768M '
    '--gres=tpu:4\n'
    "#SBATCH --time=60 '--comment=two words'\n"
    '#SBATCH --partition=tpu\n'
    '#SBATCH hetjob\n'
    '#SBATCH --nodes=1 --ntasks-per-node=1 --cpus-per-task=4 --no-requeue --mem=8192M '
    '--constraint=workers\n'
    "#SBATCH --time=60 '--comment=two words'\n"
    '#SBATCH --partition=cpu\n'
    '\n'
    'export PYTHONPATH=/code\n'
    f"exec {shlex.join(command)} '/runs/50% of it'\n"
  )


def test_a_job_that_may_be_requeued_is_told_of_its_time_limit_where_its_launcher_is():
  options = Slurm(requeue=True, options='--time=60')
  plan = planning.plan(GROUPS, _placement(learner=LEARNER), options)
  script = planning.script(plan, options, 'sebulba', '/run', '/env/python', '/code')
  first, second = (line for line in script.splitlines() if '--nodes=' in line)
  assert first.endswith(' --requeue --signal=B:USR1@120 --mem=32768M --gres=tpu:4')
  assert second.endswith(' --requeue') and '--no-requeue' not in script


@pytest.mark.parametrize(
  'changed, message',
  [
    ({'replay': Resources(resources={'disk': 1})}, "'replay' asks for disk among its resources"),
    ({'monitor': Resources(with_launcher=True, accelerator='gpu')}, "'monitor' runs beside"),
    ({'monitor': Resources(with_launcher=True, labels={'a': 'b'})}, "'monitor' runs beside"),
  ],
)
def test_resources_that_a_job_cannot_have_are_rejected(changed, message):
  with pytest.raises(ValueError, match=message):
    planning.check(_placement(**changed))


@pytest.mark.parametrize(
  'run_dir, name, labels, words',
  [
    ('/runs/a\ntouch /tmp/x\n', 'sebulba', {}, '--run_dir='),
    ('/runs/a', 'sebulba\ntouch /tmp/x', {}, 'the name of the program'),
    ('/runs/a', 'sebulba', {'cpu': 'zen4\ntouch /tmp/x'}, 'labels'),
  ],
)
def test_text_that_would_escape_a_comment_of_the_script_is_rejected(run_dir, name, labels, words):
  with pytest.raises(ValueError) as error:
    plan = planning.plan({'actor': 1}, {'actor': Resources(labels=labels)}, Slurm())
    planning.script(plan, Slurm(), name, run_dir, 'python', '')
  assert words in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize(
  'run_dir, options, words',
  [
    ('a\nb', '', 'error: --run_dir='),
    ('a\\b', '', 'has a backslash'),
    ('a', 'time=60', 'error: --slurm_options='),
  ],
)
def test_resources_that_no_job_can_have_are_rejected_before_anything_is_written(
  tmp_path, monkeypatch, run_dir, options, words
):
  sbatch = tmp_path / 'bin' / 'sbatch'
  sbatch.parent.mkdir()
  sbatch.touch(0o755)
  monkeypatch.setenv('PATH', str(sbatch.parent))
  path = tmp_path / run_dir
  process = launch('--launcher=slurm', f'--run_dir={path}', f'--slurm_options={options}')
  assert process.returncode == 2 and words in process.stderr, process.stderr
  assert process.stderr.count('\n') == 1 and not path.exists()


def test_a_run_directory_with_a_line_break_is_rejected_by_every_launcher(tmp_path):
  with pytest.raises(ValueError, match='--run_dir='):
    run_directory.create(f'{tmp_path}/a\nb')
  assert not list(tmp_path.iterdir())
  with pytest.raises(ValueError, match='--resume='):
    run_directory.reopen(f'{tmp_path}/a\nb')


@pytest.mark.parametrize(
  'text', ['partition=cpu', '--comment="open', '--time=60\n--nodes=7', '--time=60\0']
)
def test_an_unknown_option_of_sbatch_is_rejected(text):
  options = Slurm(cpu_options=text)
  plan = planning.plan({'actor': 1}, {'actor': Resources()}, options)
  with pytest.raises(ValueError, match='--slurm_cpu_options='):
    planning.script(plan, options, 'name', '/run', 'python', '')


def test_slurms_own_requeue_is_rejected_because_the_run_would_not_resume():
  options = Slurm(options='--time=60 --requeue')
  plan = planning.plan({'actor': 1}, {'actor': Resources()}, options)
  with pytest.raises(ValueError, match=r'^--slurm_options=.*; use --slurm_requeue\.$'):
    planning.script(plan, options, 'name', '/run', 'python', '')


def _job(program, run_dir):
  placement = dict.fromkeys(program.groups, Resources())
  return Job('test', program, placement, {}, {'run_dir': str(run_dir)})


def _commands(directory, monkeypatch, **scripts):
  """Puts commands of Slurm on the PATH, each by its lines of shell."""
  for name, lines in scripts.items():
    (directory / name).write_text(f'#!/bin/sh\n{lines}\n')
    (directory / name).chmod(0o755)
  monkeypatch.setenv('PATH', str(directory), prepend=os.pathsep)


def test_a_job_can_no_longer_be_refused_once_slurm_has_it(tmp_path, monkeypatch):
  accepted = []
  for name, code in (('refuses', 1), ('takes', 0)):
    (tmp_path / name).mkdir()
    _commands(tmp_path / name, monkeypatch, sbatch=f'echo 7; exit {code}')
    with contextlib.suppress(ValueError):
      job = _job(nodes.program(), tmp_path)
      submit.launch(job, Slurm(wait=False), io.StringIO(), lambda name=name: accepted.append(name))
  assert accepted == ['takes']


def test_a_job_is_followed_while_its_log_cannot_be_read(tmp_path, monkeypatch):
  line = 'JobState=FAILED Reason=None Restarts=0 ExitCode=3:0'
  _commands(tmp_path, monkeypatch, sbatch='echo 7', scontrol=f'echo {line}')
  (tmp_path / 'slurm.log').mkdir()  # Another error than that of a missing file.
  out = io.StringIO()
  assert submit.launch(_job(nodes.program(), tmp_path), Slurm(), out) == 1
  assert 'job 7 ended as FAILED' in out.getvalue()


def test_a_job_submitted_from_a_requeued_job_is_a_new_one(tmp_path, monkeypatch):
  says = 'echo "restarts: ${SLURM_RESTART_COUNT-none}" >&2; exit 1'
  _commands(tmp_path, monkeypatch, sbatch=says)
  monkeypatch.setenv('SLURM_RESTART_COUNT', '1')
  program = nodes.program()
  with pytest.raises(ValueError, match='restarts: none'):
    submit.launch(_job(program, tmp_path), Slurm())


@pytest.mark.parametrize(
  'resources, options, flag',
  [
    (Resources(), Slurm(accelerator_options='--time=1'), '--slurm_accelerator_options'),
    (Resources(accelerator='gpu'), Slurm(cpu_options='--time=1'), '--slurm_cpu_options'),
  ],
)
def test_options_for_hosts_that_the_job_lacks_are_rejected(resources, options, flag):
  plan = planning.plan({'actor': 1}, {'actor': resources}, options)
  with pytest.raises(ValueError, match=f"^{flag}='--time=1' is for hosts of another kind"):
    planning.script(plan, options, 'name', '/run', 'python', '')


def test_a_dry_run_prints_the_graph_and_the_script_and_needs_no_slurm(tmp_path):
  placement = tmp_path / 'placement.yaml'
  placement.write_text('inference_learner: {accelerator: tpu-v5e, num_devices: 4}')
  shown = run_python(
    str(ROOT / 'launch.py'),
    '--launcher=slurm',
    '--dry_run',
    f'--placement={placement}',
    f'--run_dir={tmp_path}/run',
    '--num_actors=6',
    '--slurm_cpu_nodes=2',
    '--slurm_cpu_options=--partition=cpu',
    PATH='',
  )
  assert 'inference_learner -> replay' in shown
  assert ['inference_learner', '1', 'x', '1', 'CPU,', '4', 'TPU-V5E'] in map(
    str.split, shown.split('\n')
  )
  assert re.search(r'\n  in all +10 nodes: 9 CPU, 4 TPU\n', shown)
  script = shown[shown.index('#!/bin/sh') :].splitlines()
  assert script[2].startswith('#SBATCH --nodes=1 ') and script[2].endswith(' --gres=tpu:4')
  assert script[3:6] == [
    '#SBATCH hetjob',
    '#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --no-requeue',
    '#SBATCH --partition=cpu',
  ]
  assert not (tmp_path / 'run').exists()


def test_the_message_of_srun_about_a_node_that_never_starts_is_in_its_log(tmp_path):
  log = tmp_path / 'log'
  command = ['sh', '-c', 'echo "srun: error: no such host" >&2; exit 1']
  node = step.SlurmNode('actor/0', str(log), Resources(), command, '7')
  wait_until(lambda: node.exit_code() is not None)
  assert node.ending() == 'exited with code 1'
  assert log.read_text() == 'srun: error: no such host\n'


@pytest.mark.parametrize(
  'code, expected, words',
  [
    (253, -signal.SIGKILL, 'was killed by SIGKILL, because its step was out of memory'),
    (255, 255, 'exited with code 255'),
    (128 + signal.SIGSEGV, -signal.SIGSEGV, 'was killed by SIGSEGV'),
  ],
)
def test_the_code_of_a_step_is_that_of_its_node(tmp_path, code, expected, words):
  command = ['sh', '-c', f'exit {code}']
  node = step.SlurmNode('actor/0', str(tmp_path / 'log'), Resources(), command, '1')
  wait_until(lambda: node.exit_code() is not None)
  assert (node.exit_code(), node.ending()) == (expected, words)


def test_a_node_that_has_not_started_has_no_stacks_and_goes_on(tmp_path):
  node = step.SlurmNode('actor/0', str(tmp_path / 'log'), Resources(), ['sleep', '1000'], '1')
  node.send(STACKS)
  assert node.exit_code() is None
  node.send(signal.SIGTERM)
  wait_until(lambda: node.exit_code() is not None)
  assert node.exit_code() == -signal.SIGTERM


def test_a_stop_is_sent_again_until_slurm_takes_it(tmp_path, monkeypatch):
  scancel, tried = tmp_path / 'scancel', tmp_path / 'tried'
  monkeypatch.setenv('PATH', str(tmp_path), prepend=os.pathsep)
  monkeypatch.setattr(step, '_RESEND_SECONDS', 0.0)
  command = ['sh', '-c', 'echo 3 >&2; exec sleep 1000']
  node = step.SlurmNode('actor/0', str(tmp_path / 'log'), Resources(), command, '1')
  try:
    wait_until(node._step)
    node.send(signal.SIGTERM)  # There is no scancel yet, as where no process can be started.
    assert node.exit_code() is None
    # The second time it succeeds.
    scancel.write_text(
      f'#!/bin/sh\necho $* >> {tried}\n[ $(wc -l < {tried}) -eq 2 ] && kill {node._srun.pid}\n'
    )
    scancel.chmod(0o755)
    wait_until(lambda: node.exit_code() is not None)
    assert tried.read_text() == 2 * '--signal=TERM 1.3\n'
  finally:
    node._srun.kill()
    node._srun.wait()


def test_heartbeats_that_were_read_take_no_disk_space_and_later_ones_arrive(tmp_path, monkeypatch):
  monkeypatch.setattr(disk_space, 'STEP', 1 << 14)
  node = step.SlurmNode('actor/0', str(tmp_path / 'log'), Resources(), ['sleep', '1000'], '1')
  try:
    file = node._messages.fileno()
    for second in range(1000):
      os.write(file, Beat('playing', float(second), 0.0, 1.0, 10.0, 1.0, 5, 5).pack())
      assert node.beat()[0].seconds == second
    size, used = os.fstat(file).st_size, 512 * os.fstat(file).st_blocks
    assert size > 1 << 17
    if disk_space.release(file, 4096):  # Not every file system makes holes.
      assert used < size / 2
  finally:
    node._srun.kill()
    node._srun.wait()


def test_ports_are_distinct_and_free_and_begin_where_the_job_says():
  first = probe.first_port(3)
  ports = probe.free_ports(first, 50)
  assert len(set(ports)) == 50 and first <= min(ports) and max(ports) < 32000
  with socket.socket(socket.AF_INET6) as taken:
    taken.bind(('', ports[0]))
    assert ports[0] not in probe.free_ports(first, 50)


@pytest.mark.parametrize('asked, seconds', [([], 0.0), ([signal.SIGTERM], 1000.0)])
def test_a_host_that_does_not_reply_holds_nothing_up(asked, seconds):
  scripts = 'exec sleep 1000', 'echo a; echo b'
  steps = [subprocess.Popen(['sh', '-c', s], stdout=subprocess.PIPE, text=True) for s in scripts]
  wait_until(lambda: steps[1].poll() is not None)
  assert probe.output(steps, asked, seconds) == ['a', 'b']
  assert steps[0].returncode == -signal.SIGKILL


def test_a_host_reports_names_that_it_cannot_resolve_and_interpreters_that_it_lacks():
  arguments = ('10000', '2', '', 'localhost', 'nobody.invalid')
  _, *words = entry.command('', 'launchers.slurm.probe', *arguments)
  report = json.loads(run_python(*words, SLURMD_NODENAME='h1'))
  assert report['host'] == 'h1' and len(report['ports']) == 2
  assert report['problem'].startswith('does not know the name nobody.invalid (')
  words[-3:] = ['/no/python:/no', 'localhost', 'localhost']
  report = json.loads(run_python(*words, SLURMD_NODENAME='h1'))
  assert report['problem'] == 'has no interpreter /no/python'


@pytest.mark.parametrize('missing', ['job file', 'interpreter', 'code', ''])
def test_missing_files_of_a_host_are_reported_whatever_characters_the_path_has(tmp_path, missing):
  directory = tmp_path / 'a "run" \\ of \'mine\' with 50%'
  directory.mkdir()
  file, python = directory / 'job.pkl', directory / 'python'
  if missing != 'job file':
    file.touch()
  if missing != 'interpreter':
    # The interpreter is to find the code.
    code = '' if missing == 'code' else f'export PYTHONPATH={ROOT}; exec {sys.executable} "$@"'
    python.write_text(f'#!/bin/sh\n{code or "exit 1"}\n')
    python.chmod(0o755)
  command = probe.command(str(python), str(file), 10000, 2, ['localhost'])
  said = subprocess.run(
    command, capture_output=True, text=True, env={**os.environ, 'SLURMD_NODENAME': 'h7'}
  ).stdout
  lines = ['Welcome to the {cluster}', '{"a": 1}', '{', *said.splitlines()]
  if missing:
    path = {'job file': f'have the file {file}', 'interpreter': f'no interpreter {python}'}
    words = path.get(missing, f'cannot run the code with {python}')
    with pytest.raises(ValueError) as error:
      probe.ports(lines, str(python), str(file))
    assert 'host h7 ' in str(error.value) and words in str(error.value)
  else:
    assert len(probe.ports(lines, str(python), str(file))['h7']) == 2


def test_jobs_look_for_ports_in_range():
  assert all(10000 <= probe.first_port(n) < 32000 for n in range(1, 5000))


def test_a_machine_without_slurm_gets_one_sentence(tmp_path, monkeypatch):
  monkeypatch.setenv('PATH', str(tmp_path))
  with pytest.raises(ValueError, match='--launcher=slurm needs sbatch, which is not on the PATH'):
    submit.check({'actor': Resources()}, dry_run=False)
  submit.check({'actor': Resources()}, dry_run=True)


def test_a_job_file_that_cannot_be_written_is_reported_in_one_sentence(tmp_path):
  (tmp_path / 'nodes').touch()  # Where a directory has to be.
  program = nodes.program()
  with pytest.raises(ValueError, match=rf'cannot be started: {tmp_path}/nodes: '):
    submit.launch(_job(program, tmp_path), Slurm())
