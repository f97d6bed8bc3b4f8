"""A local run in a network of its own, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest

from launchers.local import isolation
from launchers.placement import Resources
from tests.launchers import strangers
from tests.waiting import DEADLINE, alive, wait_until

pytestmark = pytest.mark.slow
NOBODY = 65534
# A user who is not root and has no capabilities: root here may not, and another user could not, give
# its rights to the interpreter and to the test's directory away.
UNPRIVILEGED = ('unshare', '--user', f'--map-user={NOBODY}', f'--map-group={NOBODY}')
# Root of a user namespace may set the namespace's limits, for itself.
FORBIDDEN = (
  *('unshare', '--user', '--map-root-user', 'sh', '-c'),
  'for kind in net user; do echo 0 > /proc/sys/user/max_${kind}_namespaces; done; exec "$@"',
  'sh',
)
# A machine whose name leads nowhere.
LOST = (
  *('unshare', '--user', '--map-root-user', '--uts', 'sh', '-c'),
  'echo nowhere.invalid > /proc/sys/kernel/hostname; exec "$@"',
  'sh',
)
_LISTEN = """
import socket
from nodes.runtime import network_namespace
network_namespace.enter()
network_namespace.set_resolvable_host_name()
with socket.create_server((socket.gethostname(), 0)) as server:
  print(socket.gethostname(), *server.getsockname()[:1])
"""
_DRIVER = """
import os
import sys
from launchers.local import local_mp
from launchers.placement import Resources
from tests.launchers import nodes
mode, directory = sys.argv[1:]
program = nodes.program((nodes.Caller, True, f'{directory}/answer'))
placement = {label: Resources() for label in program.groups}
try:
  sys.exit(local_mp.launch(program, placement, directory, isolate=mode))
except ValueError as error:
  sys.exit(str(error))
"""


def _skip_unless_possible(as_user):
  if as_user and subprocess.run([*as_user, 'true'], capture_output=True).returncode:
    pytest.skip('no user may make a user namespace here')


def _start(as_user, mode, directory):
  _skip_unless_possible(as_user)
  return subprocess.Popen(
    [*as_user, sys.executable, '-c', _DRIVER, mode, str(directory)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _server_of(launcher):
  for process in psutil.Process(launcher.pid).children(recursive=True):
    with contextlib.suppress(psutil.Error):  # The caller may end meanwhile.
      if process.cmdline()[-1].endswith('echo-0.pkl'):
        return process
  raise AssertionError('no server')


@contextlib.contextmanager
def _running(as_user, mode, directory):
  """Starts a program; yields the launcher and the server's process once a node has called it."""
  with _start(as_user, mode, directory) as launcher:
    try:
      wait_until((directory / 'answer').exists, alive(launcher, launcher.stderr.read), DEADLINE)
      assert (directory / 'answer').read_text() == 'hello node'
      yield launcher, _server_of(launcher)
    finally:
      launcher.kill()


@pytest.mark.parametrize(
  'as_user, number, code',
  [
    ((), signal.SIGINT, 130),
    (UNPRIVILEGED, signal.SIGINT, 130),
    (UNPRIVILEGED, signal.SIGKILL, -signal.SIGKILL),
  ],
)
def test_only_the_run_itself_reaches_its_nodes_and_none_outlives_it(
  tmp_path, as_user, number, code
):
  strangers.require_isolation()
  with _running(as_user, 'auto', tmp_path) as (launcher, server):
    servers = strangers.ports(server.pid)
    assert len(servers) == 1
    assert strangers.reached(servers) == set()
    launcher.send_signal(number)
    output, errors = launcher.communicate(timeout=DEADLINE)
    server.wait(timeout=DEADLINE)
  assert (launcher.returncode, output, errors) == (code, '', '')
  assert {path.stat().st_uid for path in tmp_path.rglob('*')} == {os.getuid()}


@pytest.mark.parametrize('as_user, mode', [((), 'no'), (FORBIDDEN, 'auto')])
def test_anybody_reaches_nodes_that_are_not_isolated(tmp_path, as_user, mode):
  with _running(as_user, mode, tmp_path) as (launcher, server):
    assert strangers.reached(strangers.ports(server.pid)) == strangers.addresses()
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=DEADLINE)
  assert launcher.returncode == 130
  if mode == 'no':
    assert errors == ''
  else:
    assert errors.startswith('warning: the nodes are not isolated') and errors.count('\n') == 1
    assert 'Reverb' in errors and 'JAX' not in errors


def test_required_isolation_that_is_unavailable_is_rejected_in_one_sentence(tmp_path):
  with _start(FORBIDDEN, 'require', tmp_path) as launcher:
    try:
      _, errors = launcher.communicate(timeout=DEADLINE)
    finally:
      launcher.kill()
  assert launcher.returncode == 1
  assert errors.startswith('--isolate=require is not possible: ') and errors.count('\n') == 1
  assert list(tmp_path.iterdir()) == []


def test_a_node_that_listens_at_the_name_of_its_machine_can_do_so():
  _skip_unless_possible(LOST)
  command = [*LOST, sys.executable, '-c', _LISTEN]
  process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
  assert process.stdout == '127.0.0.1 127.0.0.1\n', process.stderr


def _begin(mode, placement):
  isolation.fork_server(mode, placement).close()


def test_a_tpu_keeps_its_network_unless_isolation_is_required(capsys):
  """That is worth a warning where JAX's own servers, which let everybody in, are on it."""
  for one_job in (False, True):
    learner = Resources(accelerator='tpu-v5e', one_job=one_job)
    _begin('auto', {'actor': Resources(), 'learner': learner})
    errors = capsys.readouterr().err
    expected = 'warning: the nodes are not isolated, because a TPU' if one_job else ''
    assert errors.startswith(expected) and ("JAX's collectives" in errors) is one_job


def test_isolation_no_prints_nothing(capsys):
  _begin('no', {'learner': Resources(accelerator='tpu')})
  assert capsys.readouterr().err == ''
