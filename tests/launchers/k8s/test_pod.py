"""Pods of a JobSet as local processes: the commands of its manifest, with localhost for host names."""

import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

import cloudpickle
import pytest
import yaml
from launchpad.launch import serialization

from launchers import certificate, one_node
from launchers.k8s import container, liveness, manifests, pod
from launchers.placement import Resources
from tests.launchers import contract, every_type, nodes, replicas
from tests.launchers.k8s import confined, schemas, small_cluster
from tests.programs_under_test import SMALL
from tests.waiting import DEADLINE

ROOT = pathlib.Path(__file__).parent.parent.parent.parent


@pytest.fixture
def start():
  """Starts the process of a pod; kills those that are left at the end."""
  started = []

  def start(command, variables, index=0, log=subprocess.PIPE):
    process = subprocess.Popen(
      command,
      cwd=ROOT,
      env={**os.environ, **variables, pod.INDEX_VARIABLE: str(index)},
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=subprocess.STDOUT,
      text=True,
    )
    started.append(process)
    return process

  yield start
  for process in started:
    process.kill()
    process.wait()


def _small_cluster(directory, *flags, confine=False):
  """Returns a cluster that runs the manifests of launch.py with these flags, with a volume `claim`."""
  output = directory / 'manifests'
  port = small_cluster.first_free_port(12)
  written = subprocess.run(
    [sys.executable, 'launch.py', *flags, '--launcher=k8s', '--image=x', '--k8s_name=run']
    + ['--k8s_volume=claim', f'--k8s_port={port}', '--node_timeout=60', f'--output={output}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert written.returncode == 0, written.stderr
  # The pods' names are those of the cluster; here they have this machine's.
  manifest = (output / 'jobset.yaml').read_text()
  jobset = yaml.safe_load(
    manifest.replace('--pod_hosts=run-{job}-0-{index}.run', '--pod_hosts=localhost')
  )
  secret = yaml.safe_load((output / 'secret.yaml').read_text())
  return small_cluster.SmallCluster(jobset, secret, directory, confine=confine)


@pytest.mark.program
@pytest.mark.nightly  # In the contract below, the nodes of a small job restart together.
def test_the_pods_of_replicas_restart_together_and_train_to_the_end(tmp_path):
  cluster = _small_cluster(tmp_path, *replicas.FLAGS)
  run_dir = tmp_path / 'claim' / 'run'
  try:
    cluster.run_until(lambda: replicas.learn(run_dir), DEADLINE)
    os.kill(cluster.pods['inference-learner/0'].pid, signal.SIGKILL)  # It has the coordinator.
  except BaseException:
    cluster.delete()
    raise
  assert cluster.run(DEADLINE), [pod.log.read_text() for pod in cluster.pods.values()]
  events = [event for event in cluster.events if 'heartbeat' not in event]
  assert events == ['inference-learner/0: exited with code 137', 'the JobSet has restarted']
  replicas.check_summary(run_dir)


@pytest.mark.program
@pytest.mark.parametrize(
  'flags, nodes_that_return',
  [
    (('--num_actors=2',), ['monitor/0', 'actor/0', 'actor/1', 'evaluator/0']),
    pytest.param(
      ('--program=impala', '--audit'),
      ['monitor/0', 'actor/0', 'evaluator/0'],
      marks=pytest.mark.nightly,
    ),
  ],
)
def test_the_pods_of_a_manifest_train_catch_to_the_end(tmp_path, flags, nodes_that_return):
  cluster = _small_cluster(tmp_path, *SMALL, *flags, confine=not confined.missing())
  pods = cluster.pods
  try:
    # The actors and the evaluator go when training has ended; the monitor's end is the program's.
    cluster.run_until(
      lambda: (
        all(pods[name].exit_code == 0 for name in nodes_that_return) or cluster.succeeded is False
      ),
      DEADLINE,
    )
    assert cluster.succeeded, [pod.log.read_text() for pod in pods.values()]
    rest = pods.keys() - nodes_that_return
    assert {pods[name].exit_code for name in rest} == {None}
  finally:
    cluster.delete()
  assert {pods[name].exit_code for name in rest} == {143}
  # Only before the first heartbeat does a probe fail.
  assert all(
    event.endswith('has sent no heartbeat yet (--node_timeout=60)') for event in cluster.events
  )

  said = ''.join(pod.log.read_text() for pod in pods.values())
  assert 'Traceback' not in said
  # Kubernetes replaces a pod; there is nothing for the user to resume.
  run_dir = tmp_path / 'claim' / 'run'
  assert (run_dir / 'checkpoints').is_dir() and 'to resume:' not in said
  assert pods['monitor/0'].log.read_text().splitlines()[-1].startswith('done: evaluator_return=')
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] > 0
  assert json.loads((run_dir / 'config.json').read_text())['config']['num_steps'] == 2000
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  assert (run_dir / 'audit').exists() is ('--audit' in flags)


_LOOK = """
import json, os, tempfile
def writable(directory):
  try:
    tempfile.TemporaryFile(dir=directory).close()
  except OSError:
    return False
  return True
status = dict(line.strip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
paths = ['/tmp', '/mnt/runs', '/mnt/heartbeat', '/', '/usr', '/var/tmp', os.getcwd()]
paths.append(os.path.expanduser('~'))
print(json.dumps([os.getuid(), status, {path: writable(path) for path in paths}]))
"""


@pytest.mark.skipif(bool(confined.missing()), reason=f'it needs {confined.missing()}')
def test_a_pod_here_is_confined_as_its_manifest_says(tmp_path):
  volumes = {'/runs': tmp_path / 'runs', '/heartbeat': tmp_path / 'heartbeat'}
  for path in volumes.values():
    path.mkdir()
  group = container.Group('monitor', 1, Resources(with_launcher=True))
  spec = container.spec(container.Run('x', 'x', []), group, user=4711)
  mounted = {m['mountPath'] for m in spec['containers'][0]['volumeMounts']}
  assert mounted == {*volumes, '/tmp', '/certificate'}
  look = subprocess.run(
    [*confined.command(spec, volumes), sys.executable, '-c', _LOOK],
    capture_output=True,
    text=True,
    env={**os.environ, 'HOME': '/tmp'},
  )
  user, status, writable = json.loads(look.stdout)
  assert user == 4711 and status['NoNewPrivs'] == '1'
  assert {int(status[f'Cap{which}'], 16) for which in ('Inh', 'Prm', 'Eff', 'Bnd', 'Amb')} == {0}
  assert {path for path, is_writable in writable.items() if is_writable} == {
    '/tmp',
    '/mnt/runs',
    '/mnt/heartbeat',
  }


_DRIVER = """
import os, sys
from absl import flags
from launchers.k8s import pod
from tests.launchers import nodes
flags.FLAGS(sys.argv[:1])
answer, label, port, ends_program = sys.argv[1:]
program = nodes.program(
  (nodes.Caller, True, answer), (nodes.Stopper, False, answer), (nodes.Crasher, False, answer),
  (nodes.Environment, False, answer)
)
code = pod.launch(program, label, pod.node_index(), 'localhost', int(port), ends_program == 'yes')
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


@pytest.mark.slow
def test_the_exit_code_of_a_pod_tells_how_its_node_ended(tmp_path, start):
  port = small_cluster.first_free_port(1)

  def run(label, ends_program='no'):
    arguments = [str(tmp_path / 'answer'), label, str(port), ends_program]
    return start([sys.executable, '-c', _DRIVER, *arguments], {})

  echo, caller = run('echo'), run('node0')
  stopper, other, crasher = run('node1', 'yes'), run('node1'), run('node2')
  assert caller.wait(DEADLINE) == 0
  assert (tmp_path / 'answer').read_text() == 'hello node'
  assert stopper.wait(DEADLINE) == 0
  output, _ = other.communicate(timeout=DEADLINE)
  assert other.returncode == 1 and '--placement' in output.splitlines()[-1]
  output, _ = crasher.communicate(timeout=DEADLINE)
  assert crasher.returncode == 1
  assert output.rstrip().endswith('RuntimeError: the node broke on purpose')
  # What evicts a pod must not make it pass for one that has done its work.
  assert echo.poll() is None
  echo.send_signal(signal.SIGTERM)
  assert echo.wait(DEADLINE) == 143


@pytest.mark.parametrize(
  'counted, restarts',
  [
    ({}, '0'),
    ({'LAUNCHPOD_FAILURES': '', 'LAUNCHPOD_EVICTIONS': ''}, '0'),
    ({'LAUNCHPOD_FAILURES': '2', 'LAUNCHPOD_EVICTIONS': '3'}, '5'),
    ({'LAUNCHPOD_FAILURES': '2', 'LAUNCHPOD_ATTEMPT': '1'}, '100002'),
  ],
)
def test_a_node_knows_its_restart_count_from_what_its_job_has_counted(
  tmp_path, start, counted, restarts
):
  arguments = [str(tmp_path / 'environment'), 'node3', str(small_cluster.first_free_port(1)), 'no']
  assert start([sys.executable, '-c', _DRIVER, *arguments], counted).wait(DEADLINE) == 0
  assert json.loads((tmp_path / 'environment').read_text())['LAUNCHPOD_RESTART_COUNT'] == restarts


def test_every_node_has_a_port_of_its_own_and_the_name_that_jobset_gives_it():
  program = nodes.program((nodes.Caller, True, ''), (nodes.Crasher, False, ''))
  assert one_node.ports(program, 8900) == {('echo', 0): [8900], ('node0', 0): [], ('node1', 0): []}
  assert one_node.host_name('inference_learner') == 'inference-learner'


def test_an_unknown_pod_is_rejected(monkeypatch):
  monkeypatch.delenv(pod.INDEX_VARIABLE, raising=False)
  with pytest.raises(ValueError, match='JOB_COMPLETION_INDEX'):
    pod.node_index()
  with pytest.raises(ValueError, match='--pod_group=echo has no node 1'):
    pod.launch(nodes.program(), 'echo', 1, 'localhost', 8900, False)


_POD = """
import os, sys, types
import cloudpickle
from absl import flags
from launchers import engine_flags
from launchers.supervise import NO_CALLBACKS
path = sys.argv[1]
flags.FLAGS([*sys.argv[1:], '--launcher=pod'])
pod = engine_flags.chosen()
pod.begin()
with open(path, 'rb') as f:
  job = types.SimpleNamespace(program=cloudpickle.load(f))
code = pod.launch(job, NO_CALLBACKS)
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


class _Pods(contract.Engine):
  """The pods of manifests; their output is in the log files, and that of a launch is the events."""

  def __init__(self):
    self._cluster = None

  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    where = dict.fromkeys(program.groups, Resources()) | (placement or {})
    for label, (node, *_) in program.groups.items():
      stops = {nodes.Stopper, every_type.sample}
      if {getattr(node, name, None) for name in ('_constructor', '_function')} & stops:
        # In a pod of any other group, lp.stop() raises.
        where[label] = dataclasses.replace(where[label], with_launcher=True)
    serialization.enable_lru_cache_pickling_once()
    path = run_dir / 'program.pkl'
    path.write_bytes(cloudpickle.dumps(program))
    port = small_cluster.first_free_port(len(where))
    command = [sys.executable, '-c', _POD, str(path), '--pod_hosts=localhost', f'--k8s_port={port}']
    pem = certificate.new().decode()
    run = container.Run(
      'test', 'x', command, 'claim', token=os.urandom(16).hex(), pem=pem, node_timeout=node_timeout
    )
    generated = manifests.generate(program, where, run, port).manifests
    jobset, secret = (yaml.safe_load(generated[f'{name}.yaml']) for name in ('jobset', 'secret'))
    schemas.validate_jobset(jobset)
    # A pod that is deleted while its node is in a call has 30 seconds; two are enough to see it go.
    self._cluster = small_cluster.SmallCluster(jobset, secret, run_dir, grace=2)
    succeeded = self._cluster.run(self.deadline)
    return 0 if succeeded else 1, '\n'.join(self._cluster.events)

  def nodes(self, run_dir):
    return [pod.pid for pod in self._cluster.pods.values() if contract.runs(pod.pid)]

  def check_failed(self, output, node, how, last=''):
    code = {'was killed by SIGKILL': 137, 'exited with code 1': 1}[how]
    assert output.splitlines()[-1] == f'{node}: exited with code {code}'

  def check_restarted(self, output, labels):
    replaced = re.findall(r'^(\w+)/0: replaced$', output, re.MULTILINE)
    assert sorted(replaced) == labels
    assert output.count('exited with code 137') == len(labels)

  def check_job_restarted(self, output):
    assert output.splitlines()[:2] == ['job/1: exited with code 137', 'the JobSet has restarted']

  def check_hung(self, output, node):
    events = [event for event in output.splitlines() if event.startswith(node)]
    i = events.index(f'{node}: killed')
    assert events[i + 1 : i + 3] == [f'{node}: exited with code 137', f'{node}: replaced']
    hang = rf'{node}: probe failed: the node has sent no heartbeat for \d+ s \(--node_timeout=5\)'
    checks = [event for event in events[:i] if re.fullmatch(hang, event)]
    assert len(checks) == liveness.FAILURES


@pytest.fixture
def engine():
  return _Pods()


@pytest.mark.slow
class TestContract(contract.NodeContract):
  # test_liveness.py has the probe that ends such a pod.
  test_a_node_that_hangs_is_killed_after_its_stacks_are_logged = contract.nightly(
    contract.NodeContract.test_a_node_that_hangs_is_killed_after_its_stacks_are_logged
  )
