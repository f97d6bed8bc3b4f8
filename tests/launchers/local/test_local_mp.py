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
from tests.waiting import alive, wait_until

pytestmark = pytest.mark.slow
DEADLINE = 60


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


def test_a_node_that_hangs_is_killed_after_its_stacks_are_logged_and_restarted(tmp_path):
  answer = tmp_path / 'answer'
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Hanger, str(answer)), label='hanger')
  program.add_node(lp.PyClassNode(nodes.Stopper, str(answer)), label='stopper')
  restarted = []
  callbacks = supervise.RunCallbacks(restarted=restarted.append)
  code, output = _launch(program, tmp_path, RESTARTED, callbacks=callbacks, node_timeout=10)
  assert (code, answer.read_text(), restarted) == (0, 'restart 3', 3 * ['hanger/0'])
  log_path = tmp_path / 'logs' / 'hanger-0.log'
  hangs = output.splitlines()[::2]
  ways = 2 * ['sent no heartbeat'] + ['made no progress']
  reasons = 'a signal such as SIGSTOP has stopped its process', str(log_path), str(log_path)
  for hang, how, reason in zip(hangs, ways, reasons, strict=True):
    assert f'node hanger/0 has {how} for' in hang
    assert '--node_timeout=10 allows; killing it' in hang and reason in hang
  log = log_path.read_text()
  assert '_hold_the_interpreter_lock' in log and '_make_no_progress' in log


def test_a_node_under_sigstop_is_killed_as_one_that_can_write_no_stacks(tmp_path):
  answer = tmp_path / 'answer'
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.StopsItselfOnce, str(answer)), label='stopped')
  program.add_node(lp.PyClassNode(nodes.Stopper, str(answer)), label='stopper')
  code, output = _launch(program, tmp_path, RESTARTED, node_timeout=10)
  assert (code, answer.read_text()) == (0, 'restart 1'), output
  assert re.match(
    'node stopped/0 has sent no heartbeat for .* allows; killing it, because a signal such as SIGSTOP '
    'has stopped its process\nnode stopped/0 was killed by SIGKILL; restarting',
    output,
  )


def test_a_node_that_waits_for_longer_than_the_timeout_is_left_alone(tmp_path):
  done, timeout = tmp_path / 'done', 5
  program = lp.Program('test')
  program.add_node(lp.PyClassNode(nodes.Patient, str(done)), label='patient')

  def look(beats):
    beat = beats.get('patient/0')
    if beat and beat.doing == activity.WAITING_FOR_REPLAY.name and beat.unmarked > timeout:
      (tmp_path / 'done-go').touch()

  callbacks = supervise.RunCallbacks(beats=look)
  code, output = _launch(program, tmp_path, callbacks=callbacks, node_timeout=timeout)
  assert (code, output, done.read_text()) == (0, '', 'done')


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
  wait_until(path.exists, deadline=DEADLINE)
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
path = sys.argv[1]
program = nodes.program((nodes.Blocked, True, path + '/pid'), (nodes.Parent, False, path + '/pids'))
code = local_mp.launch(program, {l: Resources() for l in program.groups}, sys.argv[1])
sys.exit(code)
"""


def _start(run_dir):
  return subprocess.Popen(
    [sys.executable, '-c', _DRIVER, str(run_dir)], stderr=subprocess.PIPE, text=True
  )


class _Local(contract.Engine):
  def launch(self, program, run_dir, placement=None, node_timeout=math.inf):
    out = io.StringIO()
    where = dict.fromkeys(program.groups, FRAGILE) | (placement or {})
    code = local_mp.launch(program, where, str(run_dir), out=out, node_timeout=node_timeout)
    return code, out.getvalue()

  def start(self, run_dir):
    return _start(run_dir)

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
  with _start(tmp_path) as launcher:
    children = []
    try:
      for name in ('pid', 'pids-0'):
        wait_until((tmp_path / name).exists, alive(launcher), DEADLINE)
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
    assert len(children) == 6  # Three nodes, what one has started, and the guard.
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
