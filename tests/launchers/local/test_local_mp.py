"""The local launcher, with real processes."""

import contextlib
import functools
import io
import math
import os
import re
import signal
import subprocess
import sys
import threading

import launchpad as lp
import psutil
import pytest

from launchers import binding, supervise
from launchers.local import local_mp
from launchers.placement import Resources
from nodes.runtime import activity
from tests.launchers import contract, nodes
from tests.waiting import DEADLINE, alive, wait_until

pytestmark = pytest.mark.slow


FRAGILE = Resources()
RESTARTED = contract.RESTARTED


def _launch(program, run_dir, resources=FRAGILE, **supervision):
  out = io.StringIO()
  placement = dict.fromkeys(program.groups, resources)
  code = local_mp.launch(program, placement, str(run_dir), out=out, **supervision)
  return code, out.getvalue()


def test_the_node_that_was_killed_is_blamed_and_not_the_one_that_misses_it(tmp_path):
  pid_file = str(tmp_path / 'pid')
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Assassin, pid_file), label='assassin')
  program.add_node(lp.CourierNode(nodes.EchoWithPid, pid_file), label='echo')
  code, output = _launch(program, tmp_path)
  assert code == 1
  assert 'error: node echo/0 was killed by SIGKILL' in output


def test_a_node_that_keeps_raising_ends_the_program(tmp_path):
  go = tmp_path / 'go'
  go.write_text('')
  program = nodes.program((nodes.Crasher, False, str(go)))
  code, output = _launch(program, tmp_path, RESTARTED)
  assert code == 1
  assert output.count('restarting in') == 2
  assert output.rstrip().endswith('RuntimeError: the node broke on purpose')


def test_nodes_that_hang_are_killed_after_their_stacks_are_logged_and_those_that_wait_are_not(
  tmp_path,
):
  """A node that is stopped writes no stacks. One that waits for replay is left alone, however long."""
  timeout, hanger = 5, nodes.Hanger
  ways = {
    'stopped': hanger.stop,
    'locked': hanger.hold_the_interpreter_lock,
    'idle': hanger.make_no_progress,
  }
  program = lp.Program('test')
  for label, way in ways.items():
    program.add_node(lp.PyClassNode(nodes.HangsOnce, str(tmp_path / label), way), label=label)
  program.add_node(lp.PyClassNode(nodes.Patient, str(tmp_path / 'patient')), label='patient')
  written = [tmp_path / label for label in (*ways, 'patient')]
  stopper = lp.PyClassNode(nodes.Stopper, os.pathsep.join(map(str, written)))
  program.add_node(stopper, label='stopper')
  restarted = []

  def look(beats):
    beat = beats.get('patient/0')
    if beat and beat.doing == activity.WAITING_FOR_REPLAY.name and beat.unmarked > timeout:
      (tmp_path / 'patient-go').touch()

  callbacks = supervise.RunCallbacks(restarted=restarted.append, beats=look)
  code, output = _launch(program, tmp_path, RESTARTED, callbacks=callbacks, node_timeout=timeout)
  assert code == 0, output
  assert [path.read_text() for path in written] == 3 * ['restart 1'] + ['done']
  assert sorted(restarted) == sorted(f'{label}/0' for label in ways)
  logs = {label: tmp_path / 'logs' / f'{label}-0.log' for label in ways}
  for label, how, reason in (
    ('stopped', 'sent no heartbeat', 'because a signal such as SIGSTOP has stopped its process'),
    ('locked', 'sent no heartbeat', f'its stacks are in {logs["locked"]}'),
    ('idle', 'made no progress', f'its stacks are in {logs["idle"]}'),
  ):
    said = rf'node {label}/0 has {how} for .* --node_timeout=5 allows; killing it, {reason}\n'
    assert re.search(said, output), output
    assert f'node {label}/0 was killed by SIGKILL; restarting' in output
  assert '_hold_the_interpreter_lock' in logs['locked'].read_text()
  assert 'make_no_progress' in logs['idle'].read_text()


def test_a_node_of_a_colocation_that_raises_is_reported_like_any_other(tmp_path):
  go = tmp_path / 'go'
  go.write_text('')
  program = lp.Program('test')
  nodes_of_one_process = [lp.CourierNode(nodes.Echo), lp.PyClassNode(nodes.Crasher, str(go))]
  program.add_node(lp.MultiThreadingColocation(nodes_of_one_process), label='pair')
  code, output = _launch(program, tmp_path)
  assert code == 1
  assert 'error: node pair/0 exited with code 1; the end of' in output
  assert output.rstrip().endswith('RuntimeError: the node broke on purpose')


@pytest.mark.parametrize('way', ['system_exit', 'exit_of_a_library', 'sigterm_of_a_stranger'])
def test_a_node_that_exits_before_its_work_is_done_is_restarted(tmp_path, way):
  answer = tmp_path / 'answer'
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Leaver, str(answer), way), label='leaver')
  code, output = _launch(program, tmp_path, RESTARTED)
  assert (code, answer.read_text()) == (0, 'restart 1')
  assert output.count('restarting in') == 1
  left = 'node leaver/0 exited with code 0 before its work was done'
  assert (left in output) is (way != 'system_exit')


def _wait_for_pids(path):
  wait_until(path.exists)
  return [int(pid) for pid in path.read_text().split()]


def test_child_processes_of_a_node_end_with_it(tmp_path):
  first, second = tmp_path / 'pids-0', tmp_path / 'pids-1'
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Parent, str(tmp_path / 'pids')), label='parent')
  program.add_node(lp.PyClassNode(nodes.Stopper, str(second)), label='stopper')

  def kill():
    os.kill(_wait_for_pids(first)[0], signal.SIGKILL)

  killer = threading.Thread(target=kill)
  killer.start()
  code, _ = _launch(program, tmp_path, RESTARTED)
  killer.join()
  assert code == 0
  assert not list(filter(contract.runs, _wait_for_pids(first) + _wait_for_pids(second)))


def test_a_node_with_an_error_that_no_restart_fixes_is_not_restarted(tmp_path):
  program = nodes.program((nodes.Hopeless, True, 'the disk is gone'))
  code, output = _launch(program, tmp_path, RESTARTED)
  assert code == 1 and 'restarting' not in output
  assert output.rstrip().endswith('NonRetryableError: the disk is gone')


def test_pending_work_is_finished_before_a_process_exits(tmp_path):
  begun, done = tmp_path / 'begun', tmp_path / 'done'
  paths = f'{begun}:{done}'
  program = nodes.program((nodes.Finisher, True, paths), (nodes.Stopper, False, str(begun)))
  code, _ = _launch(program, tmp_path)
  assert (code, done.read_text()) == (0, 'complete')
  (address,) = program.groups['echo'][0].addresses
  assert address.resolve().startswith('127.0.0.1:'), 'a name that the system may not know'


_DRIVER = """
import sys
import threading
from launchers.local import local_mp
from launchers.placement import Resources
from tests.launchers import nodes
path, kind = sys.argv[1:]
node = {'blocked': (nodes.Blocked, True, path + '/pid'), 'parent': (nodes.Parent, False, path + '/pids')}
program = nodes.program(node[kind])
code = local_mp.launch(program, {l: Resources() for l in program.groups}, sys.argv[1])
sys.exit(code)
"""


def _start(run_dir, kind):
  """Starts a launcher of `Echo` and one further node in a process of its own."""
  return subprocess.Popen(
    [sys.executable, '-c', _DRIVER, str(run_dir), kind], stderr=subprocess.PIPE, text=True
  )


class _Local(contract.Engine):
  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    out = io.StringIO()
    where = dict.fromkeys(program.groups, FRAGILE) | (placement or {})
    code = local_mp.launch(program, where, str(run_dir), out=out, node_timeout=node_timeout)
    return code, out.getvalue()

  def start(self, run_dir):
    return _start(run_dir, 'blocked')

  def nodes(self, run_dir):
    payloads = f'{run_dir}/nodes/'
    found = psutil.process_iter(['cmdline'])
    return [p.pid for p in found if any(w.startswith(payloads) for w in p.info['cmdline'] or ())]


@pytest.fixture
def engine():
  return _Local()


class TestContract(contract.Contract):
  # The test of a hanging node above asks for more.
  test_a_node_that_hangs_is_killed_after_its_stacks_are_logged = contract.nightly(
    contract.Contract.test_a_node_that_hangs_is_killed_after_its_stacks_are_logged
  )


@contextlib.contextmanager
def _driver(tmp_path):
  """Starts a launcher in a process of its own; yields it and its nodes once they run.

  Kills them on exit, if they still run.
  """
  with _start(tmp_path, 'parent') as launcher:
    children = []
    try:
      wait_until((tmp_path / 'pids-0').exists, alive(launcher))
      children += psutil.Process(launcher.pid).children(recursive=True)
      yield launcher, children
    finally:
      if launcher.poll() is None:
        children += psutil.Process(launcher.pid).children(recursive=True)
      launcher.kill()
      for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
          child.kill()


@pytest.mark.parametrize(
  'number, presses, code',
  [
    (signal.SIGINT, 1, 130),
    (signal.SIGINT, 2, 130),
    (signal.SIGTERM, 1, 143),
    (signal.SIGHUP, 1, 129),
    (signal.SIGUSR1, 1, 138),
  ],
)
def test_signals_to_the_launcher_end_every_process(tmp_path, number, presses, code):
  with _driver(tmp_path) as (launcher, children):
    # Two nodes, what one has started, the guard, and the two processes that fork nodes.
    assert len(children) == 7
    for _ in range(presses):
      launcher.send_signal(number)
    _, errors = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == code
    assert 'Traceback' not in errors
    assert not [child for child in children if contract.runs(child.pid)]


def test_child_processes_of_nodes_do_not_outlive_a_killed_launcher(tmp_path):
  with _driver(tmp_path) as (launcher, children):
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not any(contract.runs(child.pid) for child in children))


class _Holder:
  def __init__(self):
    self.name = 'fine'
    self.lock = threading.Lock()


@pytest.mark.parametrize(
  'arguments, named',
  [
    ((threading.Lock(),), 'argument 0, of type lock,'),
    (('fine', {'a': [1, _Holder()]}), r"argument 1\['a'\]\[1\].lock, of type lock,"),
    (
      (functools.partial(print, end=threading.Lock()),),
      r"argument 0.keywords\['end'\], of type lock",
    ),
  ],
)
def test_a_node_that_cannot_be_pickled_is_named_before_anything_starts(tmp_path, arguments, named):
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Crasher, *arguments), label='bad')
  with pytest.raises(ValueError, match=f'node bad/0 cannot be sent .* because {named}'):
    _launch(program, tmp_path)
  assert not (tmp_path / 'logs' / 'bad-0.log').exists()


def test_free_ports_are_distinct():
  ports = binding.free_ports(50)
  assert len(set(ports)) == 50
