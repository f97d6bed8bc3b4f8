"""The door, in front of a server that echoes: who is let in, and what passes."""

import concurrent.futures
import contextlib
import os
import random
import socket
import ssl
import subprocess
import sys
import threading

import pytest

from courier import tls
from nodes.replay_server import child, door
from nodes.replay_server.door import Door
from nodes.runtime import replay_socket
from tests import certificates
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until

PART = 100_000
SAID = random.Random(0).randbytes(5 << 20)


class Echo:
  """Sends back what it receives, once it may."""

  def __init__(self):
    self.connections = []
    self.may_read = threading.Event()
    self.may_read.set()
    self._listener = socket.create_server(('127.0.0.1', 0))
    self.port = self._listener.getsockname()[1]
    threading.Thread(target=self._serve, daemon=True).start()

  def _serve(self):
    with contextlib.suppress(OSError):
      while True:
        connection, _ = self._listener.accept()
        self.connections.append(connection)
        threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

  def _echo(self, connection):
    with contextlib.suppress(OSError), connection:
      while self.may_read.wait() and (data := connection.recv(1 << 16)):
        connection.sendall(data)

  def close(self):
    self._listener.shutdown(socket.SHUT_RDWR)
    for connection in self.connections:
      with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def echo():
  server = Echo()
  yield server
  server.close()


@pytest.fixture(params=['plain', 'tls'])
def context(request, monkeypatch, tmp_path):
  """The run's context for clients; None for a run without a certificate."""
  monkeypatch.delenv(tls.VARIABLE, raising=False)
  if request.param == 'plain':
    return None
  monkeypatch.setenv(tls.VARIABLE, certificates.write(tmp_path / 'run.pem'))
  return tls.client_context()


@pytest.fixture
def port(echo, context):
  """The port of a door."""
  port = unused_port()
  door = Door(child.listen(port), echo.port, tls.server_context())
  threading.Thread(target=door.run, daemon=True).start()
  return port


def over_tcp(port, context=None):
  stream = socket.create_connection(('127.0.0.1', port), DEADLINE)
  return context.wrap_socket(stream) if context else stream


def handed_over(port):
  with socket.socket(socket.AF_UNIX) as stream:
    stream.settimeout(DEADLINE)
    stream.connect(replay_socket.unix_name(port))
    stream.sendall(replay_socket.HAND_OVER)
    _, (number,), _, _ = socket.recv_fds(stream, 1, 1)
  stream = socket.socket(fileno=number)
  stream.settimeout(DEADLINE)
  return stream


def echoed(stream, said):
  """Returns what comes back of `said`, which is sent in parts that no buffer is too small for."""
  heard = bytearray()
  for first in range(0, len(said), PART):
    stream.sendall(said[first : first + PART])
    while len(heard) < min(first + PART, len(said)) and (data := stream.recv(PART)):
      heard += data
  return bytes(heard)


def test_bytes_pass_unchanged_in_both_directions_however_a_client_comes(port, context):
  for connect in (lambda: over_tcp(port, context), lambda: handed_over(port)):
    with connect() as stream:
      assert echoed(stream, SAID) == SAID


def test_when_one_side_ends_so_does_the_other(port, context, echo):
  for connect in (lambda: over_tcp(port, context), lambda: handed_over(port)):
    with connect() as stream:
      assert echoed(stream, b'hello') == b'hello'
    wait_until(lambda: echo.connections[-1].fileno() == -1)
    with connect() as stream:
      assert echoed(stream, b'hello') == b'hello'
      echo.connections[-1].shutdown(socket.SHUT_RDWR)
      assert stream.recv(1) == b''


def test_a_client_is_held_back_while_reverb_does_not_read(port, context, echo):
  echo.may_read.clear()
  with over_tcp(port, context) as stream:
    stream.settimeout(0.5)
    sent = 0
    with pytest.raises(TimeoutError):
      while sent < 1 << 30:
        sent += stream.send(SAID[: 1 << 14])
    with over_tcp(port, context) as other:  # Which the first one does not hold up.
      other.sendall(b'x')
      wait_until(lambda: len(echo.connections) == 2)
    echo.may_read.set()
    stream.settimeout(DEADLINE)
    heard = 0
    while heard < sent:
      heard += len(stream.recv(1 << 16))


def stranger(certificate_of=None):
  """Returns the TLS of a client that trusts anybody."""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
  if certificate_of:
    context.load_cert_chain(certificate_of)
  return context


def refused(stream):
  """Returns whether the door ends a connection without a word to it."""
  try:
    stream.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
    return stream.recv(1) in (b'', b'\x15')  # Such as an alert of TLS.
  except TimeoutError:
    return False
  except OSError:
    return True


encrypted = pytest.mark.parametrize('context', ['tls'], indirect=True)


@encrypted
def test_nothing_of_a_stranger_reaches_reverb(port, echo, context, tmp_path):
  with over_tcp(port) as stream:
    assert refused(stream)
  with over_tcp(port, stranger()) as stream:
    assert refused(stream)
  other_run = certificates.write(tmp_path / 'other.pem')
  with over_tcp(port, stranger(other_run)) as stream:
    assert refused(stream)
  assert echo.connections == []


@encrypted
def test_clients_that_stop_amid_their_handshake_are_turned_away_and_hold_up_nobody(
  port, context, monkeypatch
):
  monkeypatch.setattr(door, '_MOST_KNOCKS', 8)
  with contextlib.ExitStack() as stack:
    silent = [stack.enter_context(over_tcp(port)) for _ in range(20)]
    for stream in silent[::2]:
      stream.sendall(b'\x16\x03\x01')
    with over_tcp(port, context) as stream:
      assert echoed(stream, b'hello') == b'hello'
    assert silent[0].recv(1) == b''
  monkeypatch.setattr(door, '_KNOCK_SECONDS', 0.1)
  with over_tcp(port) as stream:
    assert stream.recv(1) == b''


@encrypted
def test_200_clients_that_come_at_once_are_all_let_in(port, context):
  def visit(number):
    with over_tcp(port, context) as stream:
      return echoed(stream, b'%d' % number) == b'%d' % number

  with concurrent.futures.ThreadPoolExecutor(200) as pool:
    assert all(pool.map(visit, range(200)))


_WITH_ROOM = """
import os, resource, sys
from nodes.replay_server import child
from nodes.replay_server.door import Door
port, reverb, room = map(int, sys.argv[1:])
door = Door(child.listen(port), reverb, None)
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + room, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print('open', flush=True)
door.run()
"""


@pytest.mark.parametrize('room', [2, 3])
def test_without_a_descriptor_for_another_client_the_others_are_served(echo, room):
  port = unused_port()
  arguments = map(str, (port, echo.port, room))
  process = subprocess.Popen(
    [sys.executable, '-c', _WITH_ROOM, *arguments], stdout=subprocess.PIPE, text=True
  )
  try:
    assert process.stdout.readline() == 'open\n'
    with over_tcp(port) as first:
      # It takes two descriptors, to the client and to Reverb.
      assert echoed(first, b'first') == b'first'
      with over_tcp(port) as second:
        second.sendall(b's')
        if room == 3:
          assert second.recv(1) == b''
        assert echoed(first, b'again') == b'again'
        first.close()
        if room == 2:
          assert second.recv(1) == b's'

    def is_let_in():
      with contextlib.suppress(ConnectionError), over_tcp(port) as third:
        return echoed(third, b'third') == b'third'
      return False

    wait_until(is_let_in)
  finally:
    process.kill()
    process.wait()
    process.stdout.close()


_VISIT = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as stream:
  stream.connect(sys.argv[1].replace('@', chr(0)))
  try:
    stream.sendall(bytes(1))
    print(stream.recv(1))
  except OSError:
    print(b'')
"""


@pytest.mark.skipif(os.getuid() != 0, reason='only root can be another user')
@encrypted
def test_no_other_user_is_let_in_by_the_unix_socket(port, context, echo):
  command = [sys.executable, '-c', _VISIT, replay_socket.unix_name(port).replace('\0', '@')]
  assert subprocess.check_output([*command, '0'], text=True) == "b'\\x00'\n"
  assert subprocess.check_output([*command, '65534'], text=True) == "b''\n"
  assert len(echo.connections) == 1
