"""Pods of a JobSet as local processes: the commands of its manifest, with localhost for host names."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest
import yaml

from launchers import binding
from launchers.k8s import container, pod
from launchers.placement import Resources
from tests.launchers import nodes
from tests.launchers.k8s import confined
from tests.programs_under_test import SMALL

ROOT = pathlib.Path(__file__).parent.parent.parent.parent
DEADLINE = 200


def _first_free_port(count):
  """Returns the first of `count` ports in a row on which nothing listens."""
  while True:
    first = binding.free_ports(1)[0]
    try:
      for port in range(first, first + count):
        with socket.socket(socket.AF_INET6) as probe:
          probe.bind(('', port))
      return first
    except (OSError, OverflowError):
      continue


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


@pytest.mark.program
def test_the_pods_of_a_manifest_train_catch_to_the_end(tmp_path, start):
  output, runs = tmp_path / 'manifests', tmp_path / 'runs'
  runs.mkdir()
  run_dir, seen = runs / 'run', confined.RUNS if not confined.missing() else str(runs)
  written = subprocess.run(
    [sys.executable, 'launch.py', *SMALL, '--num_actors=2', '--launcher=k8s', '--image=x']
    + [f'--output={output}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert written.returncode == 0, written.stderr
  jobset = yaml.safe_load((output / 'jobset.yaml').read_text())
  here = ['--pod_hosts=localhost', f'--k8s_port={_first_free_port(3)}', f'--run_dir={seen}/run']
  pods, logs = {}, {}
  for job in jobset['spec']['replicatedJobs']:
    spec = job['template']['spec']
    (container,) = spec['template']['spec']['containers']
    confinement = [] if confined.missing() else confined.command(spec['template']['spec'], runs)
    variables = {v['name']: v['value'] for v in container['env'] if 'value' in v}
    for index in range(spec['completions']):
      name = f'{job["name"]}/{index}'
      command = [*confinement, sys.executable, *container['command'][1:], *here]
      logs[name] = tmp_path / f'{job["name"]}-{index}.log'
      with open(logs[name], 'w') as log:
        pods[name] = start(command, variables, index, log)
  names = ['monitor/0', 'replay/0', 'inference-learner/0', 'actor/0', 'actor/1', 'evaluator/0']
  assert list(pods) == names

  # The actors and the evaluator go when training has ended; the monitor's end is the program's.
  for name in ('monitor/0', 'actor/0', 'actor/1', 'evaluator/0'):
    assert pods[name].wait(DEADLINE) == 0, logs[name].read_text()
  assert jobset['spec']['successPolicy']['targetReplicatedJobs'] == ['monitor']
  # Now the JobSet controller deletes the others.
  for name in ('replay/0', 'inference-learner/0'):
    assert pods[name].poll() is None, logs[name].read_text()
    pods[name].send_signal(signal.SIGTERM)
    assert pods[name].wait(DEADLINE) == 143, logs[name].read_text()

  said = ''.join(log.read_text() for log in logs.values())
  assert 'Traceback' not in said
  # Kubernetes replaces a pod; there is nothing for the user to resume.
  assert (run_dir / 'checkpoints').is_dir() and 'to resume:' not in said
  assert logs['monitor/0'].read_text().splitlines()[-1].startswith('done: evaluator_return=')
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] > 0
  assert json.loads((run_dir / 'config.json').read_text())['config']['num_steps'] == 2000
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000


_LOOK = """
import json, os, tempfile
def writable(directory):
  try:
    tempfile.TemporaryFile(dir=directory).close()
  except OSError:
    return False
  return True
status = dict(line.strip('\\n').split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
paths = ['/tmp', '/mnt/runs', '/', '/usr', '/var/tmp', os.getcwd(), os.path.expanduser('~')]
print(json.dumps([os.getuid(), status, {path: writable(path) for path in paths}]))
"""


@pytest.mark.skipif(bool(confined.missing()), reason=f'it needs {confined.missing()}')
def test_a_pod_here_is_confined_as_its_manifest_says(tmp_path):
  group = container.Group('monitor', 1, Resources(with_launcher=True))
  spec = container.spec(container.Run('x', 'x', []), group, user=4711)
  look = subprocess.run(
    [*confined.command(spec, tmp_path), sys.executable, '-c', _LOOK],
    capture_output=True,
    text=True,
    env={**os.environ, 'HOME': '/tmp'},
  )
  user, status, writable = json.loads(look.stdout)
  assert user == 4711 and status['NoNewPrivs'] == '1'
  assert {int(status[f'Cap{which}'], 16) for which in ('Inh', 'Prm', 'Eff', 'Bnd', 'Amb')} == {0}
  assert {path for path, is_writable in writable.items() if is_writable} == {'/tmp', '/mnt/runs'}


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


def test_a_pod_says_by_its_exit_code_how_its_node_ended(tmp_path, start):
  port = _first_free_port(1)

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
  ],
)
def test_a_node_knows_its_restart_count_from_what_its_job_has_counted(
  tmp_path, start, counted, restarts
):
  arguments = [str(tmp_path / 'environment'), 'node3', str(_first_free_port(1)), 'no']
  assert start([sys.executable, '-c', _DRIVER, *arguments], counted).wait(DEADLINE) == 0
  assert json.loads((tmp_path / 'environment').read_text())['LAUNCHPOD_RESTART_COUNT'] == restarts


def test_every_node_has_a_port_of_its_own_and_the_name_that_jobset_gives_it():
  program = nodes.program((nodes.Caller, True, ''), (nodes.Crasher, False, ''))
  assert pod.ports(program, 8900) == {('echo', 0): [8900], ('node0', 0): [], ('node1', 0): []}
  assert pod.job_name('inference_learner') == 'inference-learner'


def test_a_pod_that_is_none_is_refused(monkeypatch):
  monkeypatch.delenv(pod.INDEX_VARIABLE, raising=False)
  with pytest.raises(ValueError, match='JOB_COMPLETION_INDEX'):
    pod.node_index()
  with pytest.raises(ValueError, match='--pod_group=echo has no node 1'):
    pod.launch(nodes.program(), 'echo', 1, 'localhost', 8900, False)
