"""The Ray launcher on a real cluster of three Ray nodes on this machine, with made-up resources."""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest
from ray._private import ray_constants
from ray.cluster_utils import Cluster

from launchers import ray_cluster, ray_options
from launchers.placement import Resources
from tests.launchers import nodes

ROOT = pathlib.Path(__file__).parent.parent.parent
DEADLINE = 60

# Not in every test run yet: two of these failed once where TensorFlow had been loaded beside Ray.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope='module')
def cluster():
  """A head without CPUs, a machine with TPUs, and a CPU worker; on loopback.

  As they share an address, Ray counts a launcher among any of them.
  """
  environment = pytest.MonkeyPatch()
  directory = tempfile.mkdtemp(prefix='r-', dir='/tmp')  # A socket's path has 107 bytes at most.
  environment.setenv('RAY_TMPDIR', directory)
  environment.setenv('TMPDIR', directory)
  environment.setenv('RAY_USAGE_STATS_ENABLED', '0')
  # By this switch, meant for other systems, Ray takes the loopback address for the machine's own.
  environment.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
  environment.setattr(ray_constants, 'ENABLE_RAY_CLUSTER', False)
  local = {'node_ip_address': '127.0.0.1', 'include_dashboard': False}
  quick = {'prestart_worker_first_driver': False, 'enable_worker_prestart': False}
  cluster = Cluster()
  try:
    cluster.add_node(**local, num_cpus=0, _system_config=quick)
    cluster.tpu = cluster.add_node(**local, num_cpus=1, resources={'TPU': 4}).node_id
    cluster.cpu = cluster.add_node(
      **local, num_cpus=6, resources={'big_disk': 1}, labels={'pool': 'workers'}
    ).node_id
    cluster.wait_for_nodes()
    yield cluster
  finally:
    cluster.shutdown()
    shutil.rmtree(directory, ignore_errors=True)
    environment.undo()


def _launch(cluster, program, run_dir, placement=None, timeout=DEADLINE):
  out = io.StringIO()
  where = {label: Resources() for label in program.groups} | (placement or {})
  code = ray_cluster.launch(program, where, str(run_dir), cluster.address, timeout, out)
  return code, out.getvalue()


def _node_processes():
  """Returns the processes of nodes that the cluster of this test runs."""
  found = psutil.Process().children(recursive=True)
  return [p for p in found if any('launchers.node_entry' in part for part in _command(p))]


def _command(process):
  with contextlib.suppress(psutil.Error):
    return process.cmdline()
  return []


def _log(run_dir, name):
  return (run_dir / 'logs' / f'{name}.log').read_text()


def test_stop_from_a_node_ends_every_process_with_code_0(cluster, tmp_path):
  answer, pid_file = tmp_path / 'answer', tmp_path / 'pid'
  program = nodes.program(
    (nodes.Caller, True, str(answer)),
    (nodes.Blocked, True, str(pid_file)),
    (nodes.Stopper, False, f'{answer}:{pid_file}'),
  )
  code, output = _launch(cluster, program, tmp_path)
  assert answer.read_text() == 'hello node'
  assert (code, output) == (0, '')
  assert not psutil.pid_exists(int(pid_file.read_text()))
  assert _node_processes() == []
  assert 'Traceback' not in ''.join(p.read_text() for p in (tmp_path / 'logs').iterdir())


def test_a_crash_ends_the_program_with_the_traceback_last(cluster, tmp_path):
  pid_file, variables = tmp_path / 'pid', tmp_path / 'variables'
  program = nodes.program(
    (nodes.Blocked, True, str(pid_file)),
    (nodes.Crasher, False, str(variables)),
    (nodes.Environment, False, str(variables)),
  )
  env = {'JAX_PLATFORMS': 'cpu', 'COLOUR': 'green'}
  where = {'node2': Resources(accelerator='tpu', num_devices=4, env=env)}
  where['node0'] = Resources(resources={'big_disk': 0.5}, cpus=2)
  where['node1'] = Resources(labels={'pool': 'workers'})
  where['echo'] = Resources(cpus=0, with_launcher=True)
  code, output = _launch(cluster, program, tmp_path, where)
  assert code == 1
  assert 'error: node node1/0 on 127.0.0.1 exited with code 1' in output
  assert output.rstrip().endswith('RuntimeError: the node broke on purpose')
  assert _log(tmp_path, 'node1-0').rstrip().endswith('RuntimeError: the node broke on purpose')
  assert _node_processes() == []

  seen = json.loads(variables.read_text())
  assert (seen['JAX_PLATFORMS'], seen['COLOUR'], seen['cwd']) == ('cpu', 'green', str(ROOT))
  assert sorted(seen['TPU_VISIBLE_CHIPS'].split(',')) == ['0', '1', '2', '3']
  assert not [name for name in seen if name.startswith('RAY_')]
  assert 'thirdparty_files' not in seen['PYTHONPATH']
  if os.geteuid() == 0:  # Others cannot undo what Ray does to the niceness of its workers.
    assert seen['nice'] == os.nice(0)
  places = json.loads((tmp_path / 'nodes.json').read_text())
  assert places['node2/0']['ray_node_id'] == cluster.tpu
  assert places['node0/0']['ray_node_id'] == places['node1/0']['ray_node_id'] == cluster.cpu
  assert places['echo/0']['ray_node_id'] == places['launcher']['ray_node_id']


_DRIVER = """
import sys
from launchers import ray_cluster, ray_options
from launchers.placement import Resources
from tests.launchers import nodes
program = nodes.program((nodes.Blocked, True, sys.argv[1] + '/pid'))
where = {l: Resources() for l in program.groups}
sys.exit(ray_cluster.launch(program, where, sys.argv[1], sys.argv[2]))
"""


@pytest.fixture
def driver(cluster, tmp_path):
  """A launcher in a process of its own, and its two nodes, which run."""
  launcher = subprocess.Popen(
    [sys.executable, '-c', _DRIVER, str(tmp_path), cluster.address],
    stderr=subprocess.PIPE,
    text=True,
    cwd=ROOT,
    start_new_session=True,
  )
  end = time.monotonic() + DEADLINE
  while not (tmp_path / 'pid').exists():
    assert launcher.poll() is None and time.monotonic() < end
    time.sleep(0.05)
  children = _node_processes()
  assert len(children) == 2
  yield launcher, children
  launcher.kill()
  launcher.wait()


def test_no_node_outlives_a_killed_launcher(driver):
  launcher, children = driver
  launcher.kill()
  assert psutil.wait_procs(children, timeout=DEADLINE)[1] == []


def test_ctrl_c_at_the_launcher_ends_every_process(driver):
  launcher, children = driver
  launcher.send_signal(signal.SIGINT)
  _, errors = launcher.communicate(timeout=DEADLINE)
  assert launcher.returncode == 130
  assert errors == ''
  assert psutil.wait_procs(children, timeout=0)[1] == []


@pytest.mark.parametrize(
  'victim, how', [('node', 'killed by SIGKILL'), ('supervisor', 'lost with')]
)
def test_a_killed_node_ends_the_program_and_is_named(driver, tmp_path, victim, how):
  launcher, children = driver
  node = psutil.Process(int((tmp_path / 'pid').read_text()))
  (node if victim == 'node' else node.parent()).kill()
  _, errors = launcher.communicate(timeout=DEADLINE)
  assert launcher.returncode == 1
  assert f'node node0/0 on 127.0.0.1 was {how}' in errors
  # Ray buries the child of a dead supervisor, in its own time.
  assert psutil.wait_procs(children, timeout=DEADLINE)[1] == []


def test_a_group_without_room_is_refused_in_one_sentence(cluster, tmp_path):
  program = nodes.program((nodes.Crasher, False, ''))
  where = {'node0': Resources(accelerator='tpu', num_devices=8)}
  with pytest.raises(ValueError, match=r"group 'node0' needs 1 CPU and 8 TPU .* 4 of 4 TPU"):
    _launch(cluster, program, tmp_path, where, timeout=2)
  where = {'node0': Resources(cpus=7, with_launcher=True)}
  with pytest.raises(ValueError, match=r"'node0' needs 7 CPU and the launcher's machine"):
    _launch(cluster, program, tmp_path, where, timeout=2)
  assert not (tmp_path / 'nodes.json').exists()


def test_a_machine_without_the_code_is_named(cluster, tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'executable', '/nowhere/python')
  program = nodes.program((nodes.Crasher, False, ''))
  with pytest.raises(ValueError, match=r'machine .* has no interpreter /nowhere/python'):
    _launch(cluster, program, tmp_path)


def test_no_cluster_is_refused_in_one_sentence(tmp_path):
  program = nodes.program()
  with pytest.raises(ValueError, match=r'--ray_address=127.0.0.1:1: no Ray cluster .* refused'):
    ray_cluster.launch(program, {'echo': Resources()}, str(tmp_path), '127.0.0.1:1')


def test_sebulba_trains_with_inference_and_learner_on_the_tpu_host(cluster, tmp_path):
  run_dir, placement = tmp_path / 'run', tmp_path / 'placement.yaml'
  # There is no TPU behind the claim, so JAX stays on the CPU.
  placement.write_text(
    'inference_learner: {accelerator: tpu, num_devices: 4, env: {JAX_PLATFORMS: cpu}}\n'
  )
  done = subprocess.run(
    [
      sys.executable,
      'launch.py',
      '--launcher=ray',
      f'--ray_address={cluster.address}',
      f'--placement={placement}',
      f'--run_dir={run_dir}',
      '--num_steps=2000',
      '--num_actors=2',
      '--envs_per_actor=8',
      '--batch_size=4',
      '--eval_episodes=10',
    ],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=150,
    stdin=subprocess.DEVNULL,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert re.fullmatch(
    r'done: evaluator_return=.* learner_steps=\d+ .*', done.stdout.splitlines()[-1]
  )
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] >= 20
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  places = json.loads((run_dir / 'nodes.json').read_text())
  where = {name: place['ray_node_id'] for name, place in places.items()}
  assert where['inference_learner/0'] == cluster.tpu
  workers = ('actor/0', 'actor/1', 'evaluator/0', 'replay/0')
  assert {where[name] for name in workers} == {cluster.cpu}
  assert where['monitor/0'] == where['launcher']
  assert where.keys() == {'inference_learner/0', 'monitor/0', 'launcher', *workers}
  assert _node_processes() == []


@pytest.mark.parametrize(
  'resources, expected',
  [
    (Resources(), {'num_cpus': 1.0, 'resources': {}, 'scheduling_strategy': 'SPREAD'}),
    (
      Resources(cpus=2, memory_gb=0.5, labels={'pool': 'a'}),
      {
        'num_cpus': 2,
        'resources': {},
        'memory': 2**29,
        'label_selector': {'pool': 'a'},
        'scheduling_strategy': 'SPREAD',
      },
    ),
    (
      Resources(accelerator='gpu', devices=(1, 3)),
      {'num_cpus': 1.0, 'resources': {}, 'num_gpus': 2},
    ),
    (Resources(accelerator='tpu'), {'num_cpus': 1.0, 'resources': {'TPU': 1}}),
    (
      Resources(accelerator='tpu', num_devices=8, resources={'slice-0': 1}),
      {'num_cpus': 1.0, 'resources': {'TPU': 8, 'slice-0': 1}},
    ),
  ],
)
def test_what_ray_sets_aside_for_a_group(resources, expected):
  assert ray_options.options('group', resources) == expected


def test_what_ray_cannot_set_aside_is_refused():
  with pytest.raises(ValueError, match=r"'learner' needs 3 TPU devices, but .* 1, 2, 4 or 8"):
    ray_options.check({'learner': Resources(accelerator='tpu', num_devices=3)})
  with pytest.raises(ValueError, match=r"'learner' asks for CPU .* use the field cpus"):
    ray_options.check({'learner': Resources(resources={'CPU': 3})})


def test_a_group_beside_the_launcher_is_held_to_its_machine():
  strategy = ray_options.options('g', Resources(with_launcher=True), 'abc')['scheduling_strategy']
  assert (strategy.node_id, strategy.soft) == ('abc', False)
