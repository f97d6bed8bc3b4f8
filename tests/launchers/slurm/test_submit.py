"""The Slurm launcher on a real cluster of three hosts, which are network namespaces of this machine."""

import io
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import launchers
from environments import entry
from launchers.engine import Job
from launchers.placement import Resources
from launchers.slurm import submit
from launchers.slurm.engine import Slurm
from rundir import run_end
from tests.launchers import contract, gossip, nodes, replicas
from tests.launchers.slurm import small_cluster
from tests.programs_under_test import launch
from tests.waiting import DEADLINE, alive, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
NODE, LAUNCHER = (
  ' '.join(entry.command(sys.executable, f'launchers.{module}'))
  for module in ('node_entry', 'slurm.allocation')
)
TPU = Resources(accelerator='tpu', num_devices=4, env={'JAX_PLATFORMS': 'cpu', 'COLOUR': 'green'})
WORKER = Resources(labels={'pool': 'workers'})

pytestmark = pytest.mark.cluster


def _launch(program, run_dir, placement=None, node_timeout=math.inf, **options):
  out = io.StringIO()
  where = {label: Resources() for label in program.groups} | (placement or {})
  job = Job('test', program, where, {}, {'run_dir': str(run_dir)}, node_timeout=node_timeout)
  return submit.launch(job, Slurm(**options), out), out.getvalue()


def _wait(condition, process=None):
  check = alive(process, process.communicate) if process is not None else lambda: None
  wait_until(condition, check, DEADLINE, poll=0.05)


def test_a_group_has_the_hosts_and_variables_that_its_placement_says(cluster, tmp_path):
  pid_file, on_tpu, on_cpu = (tmp_path / name for name in ('pid', 'tpu', 'cpu'))
  program = nodes.program(
    (nodes.Blocked, True, str(pid_file)),
    (nodes.Stopper, False, f'{on_tpu}:{on_cpu}'),
    (nodes.Environment, False, str(on_tpu)),
    (nodes.Environment, False, str(on_cpu)),
  )
  beside = Resources(cpus=0, with_launcher=True)
  placement = {'node0': WORKER, 'node1': WORKER, 'node2': TPU, 'node3': beside, 'echo': WORKER}
  code, output = _launch(program, tmp_path, placement)
  assert code == 0, output
  tpu, cpu = json.loads(on_tpu.read_text()), json.loads(on_cpu.read_text())
  assert tpu['SLURMD_NODENAME'] == cpu['SLURMD_NODENAME'] == 'h1'
  assert (tpu['COLOUR'], tpu['cwd']) == ('green', os.getcwd())
  assert 'COLOUR' not in cpu
  assert 'TPU_VISIBLE_CHIPS' not in tpu
  assert (cpu['TPU_VISIBLE_CHIPS'], cpu['CUDA_VISIBLE_DEVICES']) == ('', '')
  assert cpu['JAX_PLATFORMS'] == 'cpu'
  machines = {n: p['machine'] for n, p in json.loads((tmp_path / 'nodes.json').read_text()).items()}
  assert machines['node2/0'] == machines['node3/0'] == machines['launcher'] == 'h1'
  assert {machines['node0/0'], machines['node1/0'], machines['echo/0']} <= {'h2', 'h3'}


_DRIVER = """
import sys
from environments import entry
from launchers.engine import Job
from launchers.placement import Resources
from launchers.slurm import submit
from launchers.slurm.engine import Slurm
from tests.launchers import contract, nodes
program = nodes.program((nodes.Blocked, True, sys.argv[1] + '/pid'))
where = {'echo': Resources(accelerator='tpu'), 'node0': Resources()}
job = Job('test', program, where, {}, {'run_dir': sys.argv[1]})
sys.exit(submit.launch(job, Slurm(options=' '.join(sys.argv[2:]))))
"""


class _Driver:
  """A front end in a process of its own, and its job."""

  def __init__(self, run_dir, *options):
    self.process = subprocess.Popen(
      [sys.executable, '-c', _DRIVER, str(run_dir), *options],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      cwd=ROOT,
    )
    self.job_id = re.match(r'job (\d+);', self.process.stdout.readline()).group(1)

  def end(self):
    """Waits for the end of the front end; returns its exit code and what it said."""
    output, _ = self.process.communicate(timeout=DEADLINE)
    return self.process.returncode, output

  def close(self):
    self.process.kill()
    self.process.wait()
    subprocess.run(['scancel', self.job_id], capture_output=True)


class _Slurm(contract.Engine):
  servers = ('srun',)  # munge says who asks.
  _quiet = re.compile(
    r"""(job\ \d+;\ its\ output\ is\ in\ .*\n)?
    (to\ stop\ it:\ scancel\ .*\ \d+\n)?  # `_Driver` may have read it with the line before.
    (job\ \d+\ (is\ pending\ \(\w+\)|cannot\ be\ asked\ about;\ .*)\n)*
    hosts:\ .*\n
    (waiting\ up\ to\ .*\n)?
    (starting\n|nodes=\d+\n)*
    (done:\ seconds=[\d.]+\ run_dir=.*\n)?""",
    re.VERBOSE,
  )

  def __init__(self, cluster):
    self._cluster = cluster
    self._driver = None

  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    return _launch(program, run_dir, placement, node_timeout=node_timeout, cpu_nodes=2)

  def start(self, run_dir):
    self._driver = _Driver(run_dir)
    return self._driver.process

  def kill_launcher(self, launcher):
    (pid,) = self._cluster.processes('h1', LAUNCHER)
    os.kill(pid, signal.SIGKILL)

  def check_killed(self, code, output):
    assert code == 1
    assert f'error: job {self._driver.job_id} ended as FAILED' in output

  def nodes(self, run_dir):
    return [pid for host in small_cluster.HOSTS for pid in self._cluster.processes(host, NODE)]

  def said_nothing(self, output):
    return self._quiet.fullmatch(output) is not None

  def close(self):
    if self._driver:
      self._driver.close()


@pytest.mark.nightly
def test_your_own_main_runs_a_program_as_a_job(cluster, tmp_path, capfd):
  answer, run_dir = tmp_path / 'answer', tmp_path / 'run'
  program = nodes.program((nodes.Caller, True, str(answer)), (nodes.Stopper, False, str(answer)))
  engine = Slurm(cpu_nodes=2, options='--time=5')
  code = launchers.launch(program, engine, run_dir=str(run_dir))
  printed = capfd.readouterr().out
  assert code == 0 and answer.read_text() == 'hello node', printed
  assert '[echo/0] ' in printed and printed.count('done: ') == 1
  assert printed.splitlines()[-1] == run_end.result(str(run_dir))
  assert '--time=5' in (run_dir / 'slurm.sh').read_text()


@pytest.fixture
def engine(cluster):
  engine = _Slurm(cluster)
  yield engine
  engine.close()


@contract.rest_is_nightly
class TestContract(contract.Contract, gossip.Gossip):
  def test_killed_nodes_are_restarted_and_a_server_has_its_address_again(self, engine, tmp_path):
    super().test_killed_nodes_are_restarted_and_a_server_has_its_address_again(engine, tmp_path)
    where = json.loads((tmp_path / 'nodes.json').read_text())
    assert (where['echo/0']['machine'], where['killer/0']['machine']) == ('h1', 'h2')

  @pytest.mark.slow
  def test_peers_reach_each_other_and_train_to_their_end(self, engine, tmp_path):
    super().test_peers_reach_each_other_and_train_to_their_end(engine, tmp_path)
    where = json.loads((tmp_path / 'nodes.json').read_text())
    assert (where['peer/0']['machine'], where['peer/1']['machine']) == ('h1', 'h2')


@pytest.fixture
def driver(cluster, tmp_path):
  """A driver whose program runs, with a node on h2 that is in a call."""
  driver = _Driver(tmp_path)
  _wait((tmp_path / 'pid').exists, driver.process)
  yield driver
  driver.close()


@pytest.mark.parametrize('how, code', [('batch', 143), ('all', 143)])
def test_a_running_job_can_be_stopped(cluster, driver, how, code):
  assert len(cluster.processes('h1', NODE)) == 1
  cluster.run('scancel', *(['--batch', '--signal=TERM'] if how == 'batch' else []), driver.job_id)
  ended, output = driver.end()
  assert ended == code, output
  assert 'ended as FAILED' not in output
  assert 'Traceback' not in output


def test_a_pending_job_can_be_cancelled(cluster, tmp_path):
  driver = _Driver(tmp_path, '--begin=now+1hour')
  try:
    lines = driver.process.stdout
    assert lines.readline() == f'to stop it: scancel --batch --signal=TERM {driver.job_id}\n'
    assert lines.readline() == f'job {driver.job_id} is pending (BeginTime)\n'
    driver.process.send_signal(signal.SIGINT)
    assert driver.end() == (130, '')
  finally:
    driver.close()
  assert not (tmp_path / 'pid').exists()


def test_a_job_need_not_be_followed(cluster, tmp_path):
  code, output = _launch(nodes.program(), tmp_path, wait=False, options='--begin=now+1hour')
  assert code == 0
  job_id = re.match(r'job (\d+);', output).group(1)
  assert cluster.run('squeue', '-h', '-o', '%i %T') == f'{job_id} PENDING\n'
  cluster.run('scancel', job_id)


@pytest.mark.parametrize('host', ['h1', 'h2'])
def test_a_lost_host_ends_the_job(cluster, driver, host):
  cluster.lose_host(host)
  try:
    code, output = driver.end()
  finally:
    cluster.start_host(host)
  assert code == 1, output
  assert f'error: job {driver.job_id} ended as NODE_FAIL' in output


def test_a_rejection_by_slurm_is_shown(cluster, tmp_path):
  program = nodes.program()
  with pytest.raises(
    ValueError, match=r'sbatch refused .*: .*invalid partition specified: nowhere'
  ):
    _launch(program, tmp_path, options='--partition=nowhere')
  with pytest.raises(ValueError, match=r'Requested node configuration is not available'):
    _launch(program, tmp_path, {'echo': Resources(accelerator='tpu', num_devices=5)})


def test_a_host_that_does_not_share_the_run_directory_is_named(cluster):
  run_dir = cluster.unshared / contract.ODD
  run_dir.mkdir()
  program = nodes.program((nodes.Caller, True, ''), (nodes.Caller, True, ''))
  code, output = _launch(program, run_dir, cpu_nodes=3)
  assert code == 2
  assert re.search(r'\nerror: host h3 does not have the file .*/job.pkl; every host needs', output)
  assert not (run_dir / 'logs').exists()


def test_a_first_host_that_does_not_share_the_run_directory_is_suspected(cluster):
  run_dir = cluster.unshared / 'first'
  run_dir.mkdir()
  code, output = _launch(nodes.program(), run_dir, options='--nodelist=h3')
  assert code == 1
  assert re.search(r'ended as FAILED and wrote nothing to .*; does its first host share', output)


def test_a_host_without_the_interpreter_is_named(cluster, tmp_path, monkeypatch):
  interpreter = cluster.unshared / 'bin' / 'python'
  interpreter.parent.mkdir()
  for name in ('bin/python', 'lib', 'pyvenv.cfg'):
    (cluster.unshared / name).symlink_to(f'{sys.prefix}/{name}')
  monkeypatch.setattr(sys, 'executable', str(interpreter))
  program = nodes.program((nodes.Caller, True, ''), (nodes.Caller, True, ''))
  code, output = _launch(program, tmp_path, cpu_nodes=3)
  assert code == 2
  assert f'error: host h3 has no interpreter {interpreter}' in output


def test_other_hosts_than_the_job_needs_are_rejected(cluster, tmp_path):
  code, output = _launch(nodes.program(), tmp_path, options='--nodes=2')
  assert code == 2
  assert 'error: Slurm gave 2 hosts where the job needs 1; leave --nodes out' in output


def test_launch_runs_a_program_as_a_job(cluster, tmp_path):
  process = launch(
    *('--launcher=slurm', '--slurm_cpu_nodes=2', f'--run_dir={tmp_path}/run'),
    '--program=examples/primes.py:make_program',
  )
  assert process.returncode == 0, process.stderr
  assert '[collector/0] 2262 primes below 20000\n' in process.stdout
  assert process.stdout.splitlines()[-1] == run_end.result(str(tmp_path / 'run'))
  where = json.loads((tmp_path / 'run' / 'nodes.json').read_text())
  assert where.keys() == {'launcher', 'worker/0', 'worker/1', 'collector/0'}


@pytest.mark.nightly  # Its placement, launch and restarts have shorter tests above.
def test_sebulba_trains_across_hosts_and_a_killed_actor_comes_back(cluster, tmp_path):
  run_dir, placement = tmp_path / 'run', tmp_path / 'placement.yaml'
  # There is no TPU behind the claim, so JAX stays on the CPU.
  placement.write_text(
    'inference_learner: {accelerator: tpu, num_devices: 4, env: {JAX_PLATFORMS: cpu}}\n'
  )
  process = subprocess.Popen(
    [
      sys.executable,
      'launch.py',
      '--launcher=slurm',
      '--slurm_cpu_nodes=2',
      '--slurm_cpu_options=--constraint=workers',
      f'--placement={placement}',
      f'--run_dir={run_dir}',
      '--num_steps=100000',
      '--num_actors=2',
      '--envs_per_actor=8',
      '--batch_size=4',
      '--eval_episodes=10',
    ],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    stdin=subprocess.DEVNULL,
  )
  try:
    _wait((run_dir / 'logs' / 'actor-0.csv').exists, process)
    where = json.loads((run_dir / 'nodes.json').read_text())
    expected = {'monitor': 'h1', 'inference_learner': 'h1', 'replay': 'h2', 'evaluator': 'h3'}
    for label, host in expected.items():
      assert where[f'{label}/0']['machine'] == host
      assert len(cluster.processes(host, f'{NODE} {run_dir}/nodes/{label}-0.pkl')) == 1
    assert {where[f'actor/{i}']['machine'] for i in range(2)} == {'h2', 'h3'}
    (learner,) = cluster.processes('h1', f'{NODE} {run_dir}/nodes/inference_learner-0.pkl')
    os.kill(learner, signal.SIGSTOP)  # Training does not end while the actor is away.
    host = where['actor/0']['machine']
    (actor,) = cluster.processes(host, f'{NODE} {run_dir}/nodes/actor-0.pkl')
    os.kill(actor, signal.SIGKILL)
    _wait(
      lambda: set(cluster.processes(host, f'{NODE} {run_dir}/nodes/actor-0.pkl')) - {actor},
      process,
    )
    os.kill(learner, signal.SIGCONT)
    output, _ = process.communicate(timeout=DEADLINE)
  finally:
    process.kill()
    process.wait()
  assert process.returncode == 0, output
  assert re.search(r'node actor/0 on h[23] was killed by SIGKILL; restarting', output)
  assert re.fullmatch(r'done: evaluator_return=.* learner_steps=\d+ .*', output.splitlines()[-1])
  assert json.loads((run_dir / 'summary.json').read_text())['actor_steps'] >= 100000
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000


@pytest.mark.nightly
def test_replicas_on_two_hosts_restart_together_and_train_to_their_end(cluster, tmp_path):
  run_dir, output = tmp_path / 'run', tmp_path / 'output'
  flags = ('--launcher=slurm', '--slurm_cpu_nodes=2', f'--run_dir={run_dir}', *replicas.FLAGS)
  with open(output, 'w') as out:
    process = subprocess.Popen(
      [sys.executable, 'launch.py', *flags],
      cwd=ROOT,
      stdin=subprocess.DEVNULL,
      stdout=out,
      stderr=out,
    )
  try:
    _wait(lambda: replicas.learn(run_dir), process)
    places = json.loads((run_dir / 'nodes.json').read_text())
    hosts = [places[f'inference_learner/{i}']['machine'] for i in range(2)]
    assert sorted(hosts) == ['h1', 'h2']
    # The first has the coordinator.
    [victim] = cluster.processes(hosts[0], f'{NODE} {run_dir}/nodes/inference_learner-0.pkl')
    os.kill(victim, signal.SIGKILL)
    process.wait(timeout=DEADLINE)
  finally:
    process.kill()
    process.wait()
  replicas.check_ended(run_dir, process.returncode, output.read_text())
