"""The probes of a pod, by their command, at pods that hang and pods that live."""

import os
import subprocess
import sys

import pytest

from launchers import heartbeat
from launchers.k8s import container, liveness, pod
from launchers.placement import Resources
from launchers.stop_requests import STACKS
from nodes.runtime import activity
from tests.launchers.k8s import schemas
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE, alive, wait_until

# Long enough for two heartbeats on a busy machine.
TIMEOUT = 5

_DRIVER = """
import os, sys
import launchpad as lp
from absl import flags
from launchers.k8s import engine, pod
from tests.launchers import nodes
flags.FLAGS(sys.argv[:1])
engine.Pod().begin()
program = lp.Program('test')
program.add_node(lp.PyClassNode(getattr(nodes, sys.argv[1]), sys.argv[2]), label='node')
code = pod.launch(program, 'node', 0, 'localhost', 8900, False)
os._exit(code)
"""


class _Pod:
  """A pod without a network, and the command that its manifest has for its probes."""

  def __init__(self, directory, node, failures):
    directory.mkdir()
    self.log, self.written = directory / 'log', directory / 'written'
    self._heartbeat = directory / 'heartbeat'
    counts = {'LAUNCHPOD_FAILURES': str(failures), pod.INDEX_VARIABLE: '0'}
    self._environment = {**os.environ, **counts, liveness.VARIABLE: str(self._heartbeat)}
    run = container.Run('x', 'x', [], node_timeout=TIMEOUT)
    spec = container.spec(run, container.Group('node', 1, Resources()), user=1000)
    startup, live = (spec['containers'][0][probe] for probe in ('startupProbe', 'livenessProbe'))
    assert startup['exec'] == live['exec']
    self._command = [sys.executable, *live['exec']['command'][1:]]
    with open(self.log, 'w') as log:
      self.process = subprocess.Popen(
        [sys.executable, '-c', _DRIVER, node, str(self.written)],
        cwd=ROOT,
        env=self._environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )

  def probe(self):
    """Returns the exit code of the command and its output."""
    done = subprocess.run(
      self._command, cwd=ROOT, env=self._environment, capture_output=True, text=True
    )
    assert not done.stderr
    return done.returncode, done.stdout.strip()

  def beat(self):
    """Returns the latest heartbeat; None before the first."""
    return _beat(self._heartbeat) if self._heartbeat.exists() else None

  def wait_for(self, code, words):
    """Probes until the exit code is this, and the output has these words."""

    def told():
      found = self.probe()
      return found[0] == code and words in found[1]

    check = alive(self.process, self.log.read_text)
    wait_until(
      told, check, DEADLINE, poll=0.2, explain=lambda: (self.probe(), self.log.read_text())
    )


def _beat(path):
  return heartbeat.unpack(path.read_bytes().split(b'\n', 1)[1])


@pytest.fixture
def start(tmp_path):
  started = []

  def start(node, failures=0):
    started.append(_Pod(tmp_path / str(len(started)), node, failures))
    return started[-1]

  yield start
  for started_pod in started:
    started_pod.process.kill()
    started_pod.process.wait()


def _wait_for_stacks(log, words):
  wait_until(lambda: words in log.read_text(), explain=log.read_text)


@pytest.mark.slow
def test_the_probe_of_a_pod_that_hangs_fails_and_its_log_has_the_stacks(start):
  # After so many failures `nodes.Hanger` hangs in these ways. A stopped process writes nothing.
  hangs = [
    ('has sent no heartbeat for', ''),
    ('has sent no heartbeat for', '_hold_the_interpreter_lock'),
    ('has made no progress for', 'make_no_progress'),
  ]
  pods = [start('Hanger', failures) for failures in range(len(hangs))]
  for started, (how, stack) in zip(pods, hangs, strict=True):
    started.wait_for(1, f'the node {how} ')
    _wait_for_stacks(started.log, stack)
    code, said = started.probe()
    assert code == 1 and said.endswith(f'(--node_timeout={TIMEOUT})')
    assert started.process.poll() is None


@pytest.mark.slow
def test_the_probe_of_a_pod_that_waits_for_longer_than_the_timeout_succeeds(start):
  started = start('Patient')

  def check():
    assert started.process.poll() is None, started.log.read_text()

  def waits_for_long():
    beat = started.beat()
    return beat and beat.doing == activity.WAITING_FOR_REPLAY.name and beat.unmarked > TIMEOUT

  wait_until(waits_for_long, check)
  assert started.probe() == (0, '')
  started.written.with_name('written-go').touch()
  assert started.process.wait(DEADLINE) == 0
  assert started.written.read_text() == 'done'
  assert 'Thread 0x' not in started.log.read_text()


_HANGS_WHILE_IT_IS_BUILT = """
import time
def make_program(config):
  time.sleep(1000)
"""


@pytest.mark.slow
def test_a_pod_has_a_heartbeat_and_stacks_while_it_builds_the_graph(tmp_path):
  mine, log, beats = (tmp_path / name for name in ('mine.py', 'log', 'heartbeat'))
  mine.write_text(_HANGS_WHILE_IT_IS_BUILT)
  with open(log, 'w') as out:
    process = subprocess.Popen(
      [sys.executable, 'launch.py', '--launcher=pod', f'--program={mine}:make_program'],
      cwd=ROOT,
      env={**os.environ, liveness.VARIABLE: str(beats), pod.INDEX_VARIABLE: '0'},
      stdout=out,
      stderr=subprocess.STDOUT,
    )
  try:
    wait_until(beats.exists, alive(process, log.read_text), DEADLINE, explain=log.read_text)
    beat = _beat(beats)
    assert (beat.doing, beat.progress_factor) == ('starting', 4.0)
    wait_until(
      lambda: 'in make_program' in log.read_text(),
      lambda: process.send_signal(STACKS),
      DEADLINE,
      poll=0.2,
      explain=log.read_text,
    )
  finally:
    process.kill()
    process.wait()


def test_a_starting_pod_has_the_deadline_of_other_engines(tmp_path):
  assert liveness.check(str(tmp_path / 'none'), 300.0) == 'has sent no heartbeat yet'
  for timeout in (1.0, 5.0, 33.0, 300.0, 1e6):
    probes = liveness.probes(timeout)
    startup, live = probes['startupProbe'], probes['livenessProbe']
    waited = startup['periodSeconds'] * startup['failureThreshold']
    assert waited >= heartbeat.START_FACTOR * timeout
    assert waited <= heartbeat.START_FACTOR * timeout + liveness.FAILURES * 30
    assert live['failureThreshold'] > 1 and live['periodSeconds'] <= max(1, timeout / 9)
    schemas.validate(
      {
        'apiVersion': 'v1',
        'kind': 'Pod',
        'metadata': {'name': 'x'},
        'spec': {'containers': [{'name': 'x', **probes}]},
      }
    )
  assert liveness.probes(300.0)['livenessProbe']['periodSeconds'] == 30
  assert liveness.probes(float('inf')) == {}


def test_a_heartbeat_that_cannot_be_written_ends_nothing(tmp_path):
  beat = heartbeat.Beat('playing', 1.0, 0.0, 1.0, 10.0, 1.0, 5, 5)
  path = tmp_path / 'gone' / 'heartbeat'
  send = liveness.sender(str(path))
  send(beat)
  path.parent.mkdir()
  send(beat)
  assert liveness.check(str(path), 300.0) == ''
