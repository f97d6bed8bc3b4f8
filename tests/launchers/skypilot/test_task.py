"""Tasks of a job group as local processes: its own commands, with localhost for its machines."""

import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys

import cloudpickle
import launchpad as lp
import psutil
import pytest
import yaml
from launchpad.launch import serialization

from launchers import certificate
from launchers.placement import Resources
from launchers.skypilot import job_group, task
from tests.launchers import contract, every_type, nodes
from tests.launchers.k8s import small_cluster
from tests.launchers.skypilot.small_group import SmallGroup
from tests.programs_under_test import ROOT, SMALL
from tests.waiting import DEADLINE


@pytest.mark.program
def test_the_tasks_of_a_job_group_train_catch_to_the_end_and_survive_a_kill(tmp_path):
  output = tmp_path / 'run.sky.yaml'
  words = [
    sys.executable,
    'launch.py',
    *SMALL,
    '--num_actors=2',
    '--launcher=skypilot',
    '--image=x',
  ]
  written = subprocess.run(
    [*words, '--sky_name=run', '--sky_volume=claim', '--node_timeout=60', f'--output={output}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  assert written.returncode == 0, written.stderr
  group = SmallGroup(
    [*yaml.safe_load_all(output.read_text())], tmp_path, small_cluster.first_free_port(9)
  )
  try:
    group.run_until(lambda: _node_of(group.processes['actor/0'].pid), DEADLINE)
    os.kill(_node_of(group.processes['actor/0'].pid), signal.SIGKILL)
    assert group.run(DEADLINE), group.output()
  finally:
    group.cancel()
  said = group.output()
  assert 'node actor/0 was killed by SIGKILL; restarting in' in said
  assert 'Traceback' not in said and 'to resume:' not in said and 'PRIVATE KEY' not in said
  run_dir = tmp_path / 'volume' / 'run'
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] > 0
  monitor = (group.logs / 'monitor-0.log').read_text()
  assert monitor.splitlines()[-1].startswith('done: evaluator_return=')


def _node_of(pid):
  """Returns the process id of the node below the process of a task; None before it has started."""
  with contextlib.suppress(psutil.Error):
    for child in psutil.Process(pid).children():
      if 'launchers.node_entry' in ' '.join(child.cmdline()):
        return child.pid
  return None


def test_a_process_outside_of_a_task_is_rejected(monkeypatch):
  monkeypatch.delenv(task.INDEX_VARIABLE, raising=False)
  with pytest.raises(ValueError, match='SKYPILOT_NODE_RANK'):
    task.node_index()
  place = task.Place('echo', 1, 'localhost', 'echo', 8900)
  with pytest.raises(ValueError, match='--task_group=echo has no node 1'):
    task.launch(nodes.program(), place)


def test_the_certificate_leaves_the_environment_for_a_file_in_memory(monkeypatch):
  pem = certificate.new()
  monkeypatch.setenv(certificate.VARIABLE, 'replaced, and removed after the test')
  monkeypatch.setenv(task.CERTIFICATE_VARIABLE, task.secret(pem))
  with task.take_certificate():
    assert task.CERTIFICATE_VARIABLE not in os.environ
    with open(os.environ[certificate.VARIABLE], 'rb') as file:
      assert file.read() == pem
  monkeypatch.setenv(task.CERTIFICATE_VARIABLE, '***')
  with pytest.raises(ValueError, match='not the secret that'):
    task.take_certificate()


_TASK = """
import os, sys, types
import cloudpickle
from absl import flags
from launchers import engine_flags
from launchers.supervise import NO_CALLBACKS
path, node_timeout = sys.argv[1:3]
flags.FLAGS([sys.argv[0], *sys.argv[3:], '--launcher=task'])
task = engine_flags.chosen()
task.begin()
with open(path, 'rb') as f:
  job = types.SimpleNamespace(program=cloudpickle.load(f), node_timeout=float(node_timeout))
code = task.launch(job, NO_CALLBACKS)
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


class _Tasks(contract.Engine):
  """The tasks of a job group, whose output is that of its processes."""

  # Those of the nodes are found twice, because the process above a node is of the run too. One more
  # port is for reports.
  doors = 2 * contract.Engine.doors + 1

  def __init__(self):
    self._group, self._ending = None, ''

  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    where = dict.fromkeys(program.groups, Resources()) | (placement or {})
    stops = {nodes.Stopper, every_type.sample}
    ending = [
      label
      for label, (node, *_) in program.groups.items()
      if {getattr(node, name, None) for name in ('_constructor', '_function')} & stops
    ]
    # Without a node that stops the program, the end of the first one would be its end.
    (self._ending,) = ending or [*program.groups][:1]
    where[self._ending] = dataclasses.replace(where[self._ending], with_launcher=True)
    serialization.enable_lru_cache_pickling_once()
    path = run_dir / 'program.pkl'
    path.write_bytes(cloudpickle.dumps(program))
    command = [sys.executable, '-c', _TASK, str(path), str(node_timeout)]
    port = small_cluster.first_free_port(len(where) + 1)
    secret = task.secret(certificate.new())
    run = job_group.Run('test', 'x', command, token=os.urandom(16).hex(), secret=secret)
    self._group = SmallGroup(job_group.documents(program, where, run), run_dir, port)
    succeeded = self._group.run(self.deadline)
    return 0 if succeeded else 1, self._group.output()

  def nodes(self, run_dir):
    return [p.pid for p in self._group.processes.values() if contract.runs(p.pid)]

  def said_nothing(self, output):
    return not re.search('error|warning', output)

  def check_failed(self, output, node, how, last=''):
    assert re.search(rf'error: node {node} {how}; the end of ', output)
    # The process of the node that ends the program has been told, if it is another.
    told = output.count(f'error: node {node} has failed; its task has the end of its log.')
    assert told == (node != f'{self._ending}/0')

  def check_restarted(self, output, labels):
    found = re.findall(r'node (\w+)/0 was killed by SIGKILL; restarting in', output)
    assert sorted(found) == labels


@pytest.fixture
def engine():
  return _Tasks()


@pytest.mark.slow
@contract.rest_is_nightly
class TestContract(contract.NodeContract):
  def test_the_nodes_of_a_job_restart_together(self, engine, tmp_path):
    """Under SkyPilot they do not restart: the failure of one ends the program."""
    blocked = tmp_path / 'pid'
    program = lp.Program('test')
    echo = program.add_node(lp.CourierNode(nodes.Echo), label='echo')
    with program.group('job'):
      program.add_node(lp.PyClassNode(nodes.Blocked, echo, str(blocked)))
      program.add_node(lp.PyClassNode(nodes.Crasher, str(blocked)))
    code, output = engine.launch(program, tmp_path, {'job': Resources(one_job=True)})
    assert code == 1 and 'restarting' not in output
    engine.check_failed(output, 'job/1', 'exited with code 1')
