"""The Ray launcher on a real cluster of several Ray nodes on this machine, with made-up resources."""

import contextlib
import glob
import io
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import launchpad as lp
import psutil
import pytest
from ray._private import ray_constants
from ray.cluster_utils import Cluster

import launchers
from launchers.placement import Resources
from launchers.ray import cluster as ray_cluster
from launchers.ray.engine import Ray
from rundir import run_end
from tests import programs_under_test
from tests.launchers import contract, gossip, nodes
from tests.waiting import DEADLINE, alive, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
LOCAL = {'node_ip_address': '127.0.0.1', 'include_dashboard': False}
SEAT = {'num_cpus': 0, 'resources': {'seat': 1}}
pytestmark = pytest.mark.cluster


@pytest.fixture(scope='module')
def cluster():
  """A head without CPUs, the hosts of a TPU slice, a CPU worker, and a machine that a test loses.

  All but the last share an address, so Ray counts a launcher among any of them; an address of its
  own keeps launchers off the last, if another starts after it.
  """
  environment = pytest.MonkeyPatch()
  directory = tempfile.mkdtemp(prefix='r-', dir='/tmp')  # A socket's path has 107 bytes at most.
  environment.setenv('RAY_TMPDIR', directory)
  environment.setenv('TMPDIR', directory)
  environment.setenv('RAY_USAGE_STATS_ENABLED', '0')
  # By this switch, meant for other systems, Ray takes the loopback address for the machine's own.
  environment.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
  environment.setattr(ray_constants, 'ENABLE_RAY_CLUSTER', False)
  quick = {
    'prestart_worker_first_driver': False,
    'enable_worker_prestart': False,
    'health_check_initial_delay_ms': 1000,
    'health_check_period_ms': 1000,
  }
  slice_host = {'TPU': 4, 'slice-a': 1}
  cluster = Cluster()
  try:
    _add(cluster, num_cpus=0, _system_config=quick)
    cluster.tpus = [
      _add(cluster, num_cpus=1, resources=resources).node_id
      for resources in ({'TPU-v4-16-head': 1, **slice_host}, slice_host)
    ]
    cluster.doomed = _add(cluster, **SEAT, node_ip_address='127.0.0.2')
    cluster.wait_for_nodes(DEADLINE)
    cluster.cpu = _add(
      cluster,
      num_cpus=6,
      num_gpus=2,
      resources={'big_disk': 1, 'seat': 1},
      labels={'pool': 'workers'},
    ).node_id
    cluster.wait_for_nodes(DEADLINE)
    yield cluster
  finally:
    cluster.shutdown()
    shutil.rmtree(directory, ignore_errors=True)
    environment.undo()


def _add(cluster, **options):
  """Adds a machine without waiting for it, which Ray does for 30 seconds at most; returns it."""
  return cluster.add_node(wait=False, **LOCAL | options)


def _launch(cluster, program, run_dir, placement=None, timeout=DEADLINE, node_timeout=math.inf):
  out = io.StringIO()
  where = {label: Resources() for label in program.groups} | (placement or {})
  code = ray_cluster.launch(
    program, where, str(run_dir), cluster.address, timeout, out, node_timeout=node_timeout
  )
  return code, out.getvalue()


def _node_processes(name=''):
  """Returns the processes of nodes that the cluster of this test runs, or of one node."""
  found = psutil.Process().children(recursive=True)
  return [
    p
    for p in found
    if 'launchers.node_entry' in (command := _command(p)) and f'{name}.pkl' in command
  ]


def _command(process):
  with contextlib.suppress(psutil.Error):
    return ' '.join(process.cmdline())
  return ''


def _wait_until(condition, check=lambda: None):
  return wait_until(condition, check, DEADLINE, poll=0.05)


def _places(run_dir):
  return {
    name: place['ray_node_id']
    for name, place in json.loads((run_dir / 'nodes.json').read_text()).items()
  }


def test_a_group_has_the_machines_and_variables_that_its_placement_says(cluster, tmp_path):
  variables, on_gpus = [str(tmp_path / f'variables{i}') for i in range(2)], tmp_path / 'gpus'
  program = nodes.program(
    (nodes.Blocked, True, str(tmp_path / 'pid')),
    (nodes.Stopper, False, os.pathsep.join([*variables, str(on_gpus)])),
    (nodes.Environment, False, str(on_gpus)),
  )
  with program.group('slice'):
    for path in variables:
      program.add_node(lp.PyClassNode(nodes.Environment, path))
  where = {
    'echo': Resources(cpus=0, with_launcher=True),
    'node0': Resources(resources={'big_disk': 0.5}, cpus=2),
    'node1': Resources(labels={'pool': 'workers'}),
    'node2': Resources(accelerator='gpu', num_devices=2),
    'slice': Resources(
      cpus=0,  # Both nodes would fit on one host.
      accelerator='tpu',
      num_devices=2,
      resources={'TPU-v4-16-head': 1, 'slice-a': 0.5},
      env={'JAX_PLATFORMS': 'cpu', 'COLOUR': 'green'},
    ),
  }
  code, output = _launch(cluster, program, tmp_path, where)
  assert code == 0, output
  for path in variables:
    seen = json.loads(pathlib.Path(path).read_text())
    assert (seen['JAX_PLATFORMS'], seen['COLOUR'], seen['cwd']) == ('cpu', 'green', str(ROOT))
    assert re.fullmatch('[0-3],[0-3]', seen['TPU_VISIBLE_CHIPS'])
    assert not [name for name in seen if name.startswith('RAY_')]
    assert 'thirdparty_files' not in seen['PYTHONPATH']
    if os.geteuid() == 0:  # Others cannot undo what Ray does to the niceness of its workers.
      assert seen['nice'] == 0
  seen = json.loads(on_gpus.read_text())
  assert (seen['JAX_PLATFORMS'], sorted(seen['CUDA_VISIBLE_DEVICES'])) == ('cuda,cpu', list(',01'))
  where = _places(tmp_path)
  assert where['node2/0'] == cluster.cpu
  assert [where['slice/0'], where['slice/1']] == cluster.tpus
  assert where['node0/0'] == where['node1/0'] == cluster.cpu
  assert where['echo/0'] == where['launcher']


_DRIVER = """
import sys
from launchers.ray import cluster
from launchers.placement import Resources
from tests.launchers import nodes
program = nodes.program((nodes.Blocked, True, sys.argv[1] + '/pid'))
where = {'echo': Resources(restart='on_failure'), 'node0': Resources()}
sys.exit(cluster.launch(program, where, sys.argv[1], sys.argv[2]))
"""


class _Ray(contract.Engine):
  def __init__(self, cluster):
    self._cluster = cluster

  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    return _launch(self._cluster, program, run_dir, placement, node_timeout=node_timeout)

  def start(self, run_dir):
    return subprocess.Popen(
      [sys.executable, '-c', _DRIVER, str(run_dir), self._cluster.address],
      stderr=subprocess.PIPE,
      text=True,
      cwd=ROOT,
      start_new_session=True,
    )

  def said_nothing(self, output):
    return re.fullmatch(r'(waiting until .*\n)*', output) is not None

  def nodes(self, run_dir):
    return [process.pid for process in _node_processes()]


@pytest.fixture
def engine(cluster):
  return _Ray(cluster)


@contract.rest_is_nightly
class TestContract(contract.Contract, gossip.Gossip):
  pass


@pytest.mark.nightly
def test_your_own_main_runs_a_program_on_the_cluster(cluster, tmp_path, capfd):
  answer, run_dir = tmp_path / 'answer', tmp_path / 'run'
  program = nodes.program((nodes.Caller, True, str(answer)), (nodes.Stopper, False, str(answer)))
  code = launchers.launch(
    program,
    Ray(address=cluster.address, timeout=DEADLINE),
    resources={'node0': Resources(labels={'pool': 'workers'})},
    run_dir=str(run_dir),
  )
  printed = capfd.readouterr().out
  assert code == 0 and answer.read_text() == 'hello node', printed
  assert '[echo/0] ' in printed
  assert printed.splitlines()[-1] == run_end.result(str(run_dir))
  assert _places(run_dir)['node0/0'] == cluster.cpu


@pytest.fixture
def driver(engine, tmp_path):
  """A launcher in a process of its own, and its two nodes, which run."""
  launcher = engine.start(tmp_path)
  try:
    _wait_until((tmp_path / 'pid').exists, alive(launcher))
    _wait_until(lambda: len(_node_processes()) == 2, alive(launcher))
    yield launcher, _node_processes()
  finally:
    launcher.kill()
    launcher.wait()


def test_a_server_that_is_lost_ends_the_program_in_one_sentence(driver):
  launcher, children = driver
  [server] = _node_processes('echo-0')
  server.parent().kill()
  _, errors = launcher.communicate(timeout=DEADLINE)
  assert launcher.returncode == 1
  lost = 'error: node echo/0 on 127.0.0.1 was lost with its machine or its Ray worker'
  assert re.search(rf'{lost} .*; it cannot move, because its peers know its address', errors)
  # Ray buries the child of a dead supervisor, in its own time.
  assert psutil.wait_procs(children, timeout=DEADLINE)[1] == []


# `ray stop` sends SIGTERM.
@pytest.mark.parametrize(
  'victim, number', [('launcher', signal.SIGKILL), ('workers', signal.SIGTERM)]
)
def test_the_end_of_a_launcher_or_of_rays_workers_leaves_no_process_and_no_file(
  driver, victim, number
):
  launcher, children = driver
  made = lambda: glob.glob(os.path.join(os.environ['TMPDIR'], 'launchpod-*'))  # noqa: E731
  _wait_until(lambda: len(made()) == 2)
  workers = {child.parent() for child in children}
  for process in [launcher] if victim == 'launcher' else workers:
    process.send_signal(number)
  launcher.communicate(timeout=DEADLINE)
  assert launcher.returncode != 0
  _wait_until(lambda: not made() and not any(map(psutil.Process.is_running, children)))


@pytest.mark.parametrize(
  'size, resources, needs',
  [
    (1, Resources(accelerator='tpu', num_devices=8), '1 CPU and 8 TPU for each node, .* of 8 TPU'),
    (3, Resources(cpus=0, accelerator='tpu', num_devices=2), '2 TPU on 3 machines at once'),
    (1, Resources(cpus=7, with_launcher=True), "7 CPU and the launcher's machine for each node"),
  ],
)
def test_a_group_without_room_is_rejected_in_one_sentence(
  cluster, tmp_path, size, resources, needs
):
  program = nodes.program()
  with program.group('large'):
    for _ in range(size):
      program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  with pytest.raises(ValueError, match=f"^group 'large' needs {needs}"):
    _launch(cluster, program, tmp_path, {'large': resources}, timeout=1.5)
  assert not (tmp_path / 'nodes.json').exists()


def test_a_program_that_is_too_large_for_the_cluster_is_rejected_without_a_wait(cluster, tmp_path):
  program = nodes.program()
  with program.group('worker'):
    for _ in range(30):
      program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  with pytest.raises(ValueError) as error:
    _launch(cluster, program, tmp_path, timeout=None)
  assert re.match(
    r'the 31 nodes of the program need 31 CPU, and the \d machines of the cluster have \d+ CPU, .* '
    r'in total\. Ask for less with --placement, add machines, or set --ray_timeout',
    str(error.value),
  )


_WAITS = """
import sys
from launchers.ray import cluster
from launchers.placement import Resources
from tests.launchers import nodes
answer = f'{sys.argv[1]}/answer'
program = nodes.program((nodes.Caller, True, answer), (nodes.Stopper, False, answer))
where = {label: Resources(cpus=0) for label in program.groups}
where['node0'] = Resources(cpus=0, resources={'new': 1})
sys.exit(cluster.launch(program, where, sys.argv[1], sys.argv[2], 500.0))
"""


def test_a_wait_for_machines_says_what_it_waits_for_and_ends_when_they_join(cluster, tmp_path):
  launcher = subprocess.Popen(
    [sys.executable, '-c', _WAITS, str(tmp_path), cluster.address],
    stderr=subprocess.PIPE,
    text=True,
    cwd=ROOT,
  )
  try:
    said = launcher.stderr.readline()
    assert re.match(
      r'waiting until \d\d:\d\d:\d\d \(--ray_timeout\) for machines to join the cluster, because group '
      r"'node0' needs 1 new for each node, and the \d machines of the cluster have .* 0 new in total\n",
      said,
    ), said + launcher.communicate(timeout=DEADLINE)[1]
    machine = _add(cluster, num_cpus=0, resources={'new': 1})
    _, errors = launcher.communicate(timeout=DEADLINE)
    cluster.remove_node(machine)
  finally:
    launcher.kill()
  assert launcher.returncode == 0 and (tmp_path / 'answer').read_text() == 'hello node', errors


def test_a_dry_run_compares_what_the_groups_ask_with_the_cluster(cluster):
  flags = f'--launcher=ray --ray_address={cluster.address} --dry_run --num_actors=20'
  shown = programs_under_test.launch(*flags.split())
  assert shown.returncode == 0, shown.stderr
  lines = shown.stdout.splitlines()
  assert ['actor', '20', 'x', '1', 'CPU'] in [line.split() for line in lines]
  assert re.search(r'\n  in all +\d+ nodes: 23 CPU\n', shown.stdout)
  assert re.search(
    r'\nthe \d machines of the cluster have free: \d+ of \d CPU, .*; too little, because the '
    r'24 nodes of the program need 23 CPU',
    shown.stdout,
  )


def test_launch_runs_a_program_on_the_cluster(cluster, tmp_path):
  process = programs_under_test.launch(
    *('--launcher=ray', f'--ray_address={cluster.address}', f'--run_dir={tmp_path}/run'),
    '--program=examples/primes.py:make_program',
  )
  assert process.returncode == 0, process.stderr
  assert '[collector/0] 2262 primes below 20000\n' in process.stdout
  assert process.stdout.splitlines()[-1] == run_end.result(str(tmp_path / 'run'))
  assert _places(tmp_path / 'run').keys() == {'launcher', 'worker/0', 'worker/1', 'collector/0'}


@pytest.mark.parametrize(
  'program, flags, printed',
  [
    ('kernel_matrix', [], '[reducer/0] 10 blocks; accuracy '),
    ('architecture_search', ['--num_networks=16'], '[server/0] mean reward of the first quarter '),
  ],
)
def test_the_examples_outside_of_learning_run_on_the_cluster(
  cluster, tmp_path, program, flags, printed
):
  process = programs_under_test.launch(
    *(
      '--launcher=ray',
      f'--ray_address={cluster.address}',
      f'--ray_timeout={DEADLINE:.0f}',
      *flags,
    ),
    *(f'--program=examples/{program}.py:make_program', f'--run_dir={tmp_path}/run'),
  )
  assert process.returncode == 0, process.stderr
  assert printed in process.stdout
  assert process.stdout.splitlines()[-1] == run_end.result(str(tmp_path / 'run'))


def test_a_machine_without_the_code_is_named(cluster, tmp_path, monkeypatch):
  monkeypatch.setattr(sys, 'executable', '/nowhere/python')
  with pytest.raises(ValueError, match=r'machine .* has no interpreter /nowhere/python'):
    _launch(cluster, nodes.program(), tmp_path)


@pytest.mark.parametrize('address', ['127.0.0.1:1', 'auto'])
def test_no_cluster_is_rejected_in_one_sentence(tmp_path, monkeypatch, address):
  monkeypatch.setenv('RAY_ADDRESS', '127.0.0.1:1')  # As of a cluster that is gone, for auto.
  program = nodes.program()
  with pytest.raises(ValueError, match=rf'--ray_address={address}: no Ray cluster .* refused'):
    ray_cluster.launch(program, {'echo': Resources()}, str(tmp_path), address)


_PLACEMENT = """
# There is no TPU behind the claim, so JAX stays on the CPU.
inference_learner: {accelerator: tpu, num_devices: 4, env: {JAX_PLATFORMS: cpu}}
replay: {labels: {pool: workers}}
evaluator: {labels: {pool: workers}}
actor: {cpus: 0, resources: {seat: 1}}
"""


@pytest.fixture
def training(cluster, tmp_path):
  """Sebulba with an actor on the CPU worker and one on the machine that will be lost."""
  placement = tmp_path / 'placement.yaml'
  placement.write_text(_PLACEMENT)
  command = f"""
    {sys.executable} launch.py --launcher=ray --ray_address={cluster.address}
    --placement={placement} --run_dir={tmp_path}/run --num_steps=30000 --num_actors=2
    --envs_per_actor=8 --batch_size=8 --eval_episodes=10
  """.split()
  with open(tmp_path / 'output', 'w') as output:
    launcher = subprocess.Popen(
      command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
    )
  yield launcher
  launcher.kill()
  launcher.wait()


@pytest.mark.nightly  # Its placement, launch and restarts have shorter tests above.
def test_sebulba_trains_on_though_an_actors_machine_is_lost(cluster, training, tmp_path):
  run_dir, output = tmp_path / 'run', tmp_path / 'output'
  running = alive(training, output.read_text)
  reports = [run_dir / 'logs' / f'actor-{i}.csv' for i in range(2)]
  _wait_until(lambda: all(r.exists() for r in reports), running)
  [learner] = _node_processes('inference_learner-0')
  learner.suspend()  # Training does not end while the actor is away.
  before, doomed = _places(run_dir), cluster.doomed
  [moved] = [name for name, machine in before.items() if machine == doomed.node_id]
  cluster.remove_node(doomed, allow_graceful=False)
  refuge = _add(cluster, **SEAT, node_ip_address='127.0.0.3')
  _wait_until(lambda: _places(run_dir)[moved] == refuge.node_id, running)
  _wait_until(lambda: _node_processes(moved.replace('/', '-')), running)
  learner.resume()
  assert training.wait(timeout=DEADLINE) == 0, output.read_text()

  text = output.read_text()
  assert re.search(rf'node {moved} on 127.0.0.2 was lost with its machine .*; restarting', text)
  assert re.search(r'\ndone: evaluator_return=.* learner_steps=\d+ seconds=[\d.]+ run_dir=', text)
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] >= 20
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  where = _places(run_dir)
  assert where == before | {moved: refuge.node_id}
  assert moved in ('actor/0', 'actor/1')
  assert where.pop('inference_learner/0') in cluster.tpus
  assert where.pop('monitor/0') == where.pop('launcher')
  del where[moved]
  assert len(where) == 3 and set(where.values()) == {cluster.cpu}
  assert _node_processes() == []
