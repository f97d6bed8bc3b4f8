"""The process of Reverb: its network, its death and its parent's, what it restores."""

import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys

import numpy as np
import psutil
import pytest

from courier import tls
from nodes import replay
from nodes.replay_server import interpreter
from nodes.runtime import lifecycle
from nodes.unrolls import tables
from nodes.unrolls.replay_client import ReplayClient
from nodes.unrolls.table_names import UNROLLS
from tests import certificates
from tests.launchers import strangers
from tests.nodes.prioritized import prioritized
from tests.nodes.replay_size import replay_size
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until

HELLO = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS = 4
QUEUE = tables.queue_table(4)


@pytest.fixture
def start(tmp_path):
  """Starts replay servers in this process."""
  servers = []

  def start(port=None, replay_tables=QUEUE, directory='replay'):
    server = replay.ReplayServer(
      replay_tables, None, 'replay/0', str(tmp_path / directory), 0.0, port or unused_port()
    )
    servers.append(server)
    return server

  yield start
  for server in servers:
    server.close()


def kind_of_answer(stream):
  """Returns the type of the frame with which an HTTP/2 server answers; None for no answer."""
  with stream:
    try:
      stream.sendall(HELLO)
      return (stream.recv(9) or [None] * 4)[3]
    except OSError:
      return None


def test_only_a_client_with_the_runs_certificate_talks_to_reverb(start, monkeypatch, tmp_path):
  monkeypatch.setenv(tls.VARIABLE, certificates.write(tmp_path / 'run.pem'))
  where = ('localhost', start().address.rpartition(':')[2])
  raw = socket.create_connection(where, DEADLINE)
  assert kind_of_answer(tls.client_context().wrap_socket(raw)) == SETTINGS
  assert kind_of_answer(socket.create_connection(where, DEADLINE)) is None


def test_the_port_of_reverb_itself_cannot_be_reached_from_outside(start):
  strangers.require_isolation()
  servers = strangers.ports(start()._child.pid)
  assert len(servers) == 1 and strangers.reached(servers) == set()


_UNPRIVILEGED = """
import sys
from nodes import replay
from nodes.unrolls import tables
from nodes.unrolls.replay_client import ReplayClient
from tests.launchers import strangers
server = replay.ReplayServer(tables.queue_table(4), None, 'replay/0', sys.argv[1], 0.0, int(sys.argv[2]))
print(len(server._child.refusal), *strangers.reached(strangers.ports(server._child.pid)))
print(*ReplayClient(server.address).server_info())
server.close()
"""


def test_a_user_without_any_capability_has_such_a_port_too(tmp_path):
  strangers.require_isolation()
  user = ['unshare', '--user', '--map-user=65534', '--map-group=65534']
  if subprocess.run([*user, 'true'], capture_output=True).returncode:
    pytest.skip('no user may make a user namespace here')
  command = [*user, sys.executable, '-c', _UNPRIVILEGED, str(tmp_path), str(unused_port())]
  output = subprocess.check_output(command, text=True, timeout=DEADLINE)
  assert output == '0\nunrolls\n'


def test_a_node_fails_with_the_process_of_reverb(start):
  server = start()
  os.kill(server._child.pid, signal.SIGKILL)
  with pytest.raises(RuntimeError, match=r'the process of Reverb has been killed'):
    server.run()


def test_without_an_environment_for_reverb_one_sentence_says_what_to_do(start, monkeypatch):
  monkeypatch.setattr(interpreter, 'PYTHON', '/nowhere/bin/python')
  with pytest.raises(lifecycle.NonRetryableError, match=r'/nowhere/bin/python does not .*`make`'):
    start()


def test_a_checkpoint_of_reverb_0_7_2_is_restored_with_priorities_and_counts(start, tmp_path):
  """Six unrolls, sampled 30 times, and their priorities, 1 to 6."""
  source = pathlib.Path(__file__).parent.parent / 'replay_of_0_7_2'
  shutil.copytree(source, tmp_path / 'kept' / '000000000001')
  server = start(replay_tables=prioritized(), directory='kept')
  assert replay_size(server.address) == 6
  sampler = ReplayClient(server.address).sampler(UNROLLS, 100)
  samples = list(itertools.islice(sampler, 500))
  sampler.close()
  # An unroll of that version ends with its environment's id, int32, and its own, int64.
  share = {int(s.columns[0].ravel()[-12:-8].view(np.int32)[0]): s.probability for s in samples}
  total = sum(i**0.9 for i in range(1, 7))
  assert share == pytest.approx({i: (i + 1) ** 0.9 / total for i in range(6)})


_NODE = """
import sys
from nodes import replay
from nodes.unrolls import tables
directory, port = sys.argv[1:]
server = replay.ReplayServer(tables.queue_table(4), None, 'replay/0', directory, 0.0, int(port))
print(server._child.pid, flush=True)
server.run()
"""


@pytest.mark.slow
def test_the_process_dies_with_its_node_and_leaves_the_port_to_the_next(
  start, tmp_path, monkeypatch
):
  port = unused_port()
  command = [sys.executable, '-c', _NODE, str(tmp_path / 'replay'), str(port)]
  with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
    process = psutil.Process(int(node.stdout.readline()))
    with pytest.raises(OSError, match='in use'):
      start(port)
    node.kill()
  monkeypatch.setenv(lifecycle.RESTART_COUNT_VARIABLE, '1')
  start(port)
  wait_until(lambda: not process.is_running())


# A network with two machines, one of which allows no further network namespace.
_TWO_MACHINES = """
ip link set lo up
unshare --net sleep 1000 &
other=$!
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add here type veth peer name there netns $other
ip address add 10.99.0.1/24 dev here
ip link set here up
nsenter --target $other --net ip address add 10.99.0.2/24 dev there
nsenter --target $other --net ip link set there up
for kind in net user; do echo 0 > /proc/sys/user/max_${kind}_namespaces; done
OTHER=$other exec "$@"
"""
_REACHED = """
import os, socket, subprocess, sys
from nodes import replay
from nodes.unrolls import tables
from tests import certificates
from tests.launchers import strangers
port = 20001
server = replay.ReplayServer(tables.queue_table(4), None, 'replay/0', sys.argv[1], 0.0, port)
inner, = set(strangers.ports(server._child.pid).values()) - {port}
socket.create_connection(('127.0.0.1', inner), 10).close()
connect = 'import socket, sys; socket.create_connection(("10.99.0.1", int(sys.argv[1])), 10)'
for number in (port, inner):
  command = ['nsenter', '--target', os.environ['OTHER'], '--net', sys.executable, '-c', connect]
  print(subprocess.run([*command, str(number)], stderr=subprocess.DEVNULL).returncode)
server.close()
"""


def test_where_a_namespace_is_refused_the_port_of_reverb_is_closed_to_the_network(tmp_path):
  network = ['unshare', '--user', '--map-root-user', '--net', '--pid', '--fork', '--mount-proc']
  tools = all(map(shutil.which, ('unshare', 'nsenter', 'ip')))
  if not tools or subprocess.run([*network, 'true'], capture_output=True).returncode:
    pytest.skip('no user may make a network here')
  command = [*network, 'sh', '-ec', _TWO_MACHINES, 'sh', sys.executable, '-c', _REACHED]
  done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=DEADLINE)
  assert done.stdout.split() == ['0', '1'], done.stderr
  assert 'Reverb has no network namespace of its own' in done.stderr
