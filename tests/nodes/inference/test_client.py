"""Questions to a server that is late, slow, lost, or never there."""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
import types
from concurrent import futures

import numpy as np
import pytest

from courier import sockets
from nodes.inference import client as conversation_lib
from nodes.inference import codec, message_socket
from nodes.inference.client import RetryingClient, ServerAddress
from nodes.inference.message_socket import MessageSocket
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from tests import certificates
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until


@pytest.fixture(params=['memory', 'tcp', 'tls'])
def shared_memory(request, tmp_path, monkeypatch):
  if request.param == 'tls':
    monkeypatch.setenv('COURIER_TLS', certificates.write(tmp_path / 'run.pem'))
  return request.param == 'memory'


def converse(server, should_stop=lambda: False, **options):
  return RetryingClient(server, should_stop, 'a test', **options)


def ask(conversation, *values):
  conversation.send(*values)
  return codec.unpack(conversation.receive())


def test_requests_and_replies_of_any_size_arrive_whole(answer):
  server = answer(lambda array: [array + 1])
  for sizes in ((0, 1, 1000, 100_000, 20_000_000), (2_000_000, 1000, 2_000_000, 100_000)):
    conversation = converse(server)
    for size in sizes:
      array = np.arange(size).astype(np.uint8)
      np.testing.assert_array_equal(ask(conversation, array)[0], array + 1)
    conversation.close()


class _Losing:
  """Loses the first `lost` connections to a server; keeps all of them."""

  def __init__(self, address, lost):
    self._server, self._lost = ServerAddress(address), lost
    self.connections = []

  def connect(self):
    connection = self._server.connect()
    if len(self.connections) < self._lost:
      connection.peer_answers = lambda: False  # Its machine is lost.
    self.connections.append(connection)
    return connection


def test_a_request_to_a_lost_machine_is_retried_on_another_connection(answer):
  asked = []

  def third_time(value):
    asked.append(value)
    return [value] if len(asked) == 3 else ()

  conversation = converse(_Losing(answer(third_time).address, 2), silent_seconds=0.0)
  assert ask(conversation, 7) == [7]
  assert asked == [7, 7, 7]


def test_the_system_ends_no_connection_to_a_server_that_reads_nothing():
  with contextlib.closing(sockets.bind(0)) as listener:
    listener.listen()
    connection = ServerAddress(f'localhost:{listener.getsockname()[1]}').connect()
    assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
    connection.close()


@pytest.mark.parametrize(
  'retransmits, probes, answers',
  [
    (0, 0, True),
    (message_socket._LOST_PACKETS - 1, message_socket._LOST_PROBES - 1, True),
    (message_socket._LOST_PACKETS, 0, False),
    (0, message_socket._LOST_PROBES, False),
  ],
)
def test_a_machine_is_lost_once_it_acknowledges_too_few_packets(retransmits, probes, answers):
  def tcp_info(level, option, size):
    assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
    return bytes([1, 0, retransmits, probes])[:size]

  stream = types.SimpleNamespace(family=socket.AF_INET, getsockopt=tcp_info)
  assert MessageSocket(stream).peer_answers() is answers


def _read_one(inbox):
  return wait_until(lambda: inbox.poll(DEADLINE))[0]


@pytest.mark.slow
def test_a_request_to_a_busy_server_stays_on_its_connection_and_arrives_whole(shared_memory):
  port = unused_port()
  inbox = SocketServer(
    port, shared_memory=shared_memory
  )  # As that of a server that compiles: it accepts and reads nothing.
  server = _Losing(f'127.0.0.1:{port}', 0)
  polls = itertools.count()
  conversation = converse(server, lambda: next(polls) == 3, silent_seconds=0.0)
  question = bytes(range(256)) * (1 << 16)  # More than a kernel keeps.
  conversation.send(question)
  with pytest.raises(lifecycle.Stopped):
    conversation.receive()
  assert [bool(connection.unsent) for connection in server.connections] == [True]
  inbox.accept_messages_of(len(question) + 10)
  with futures.ThreadPoolExecutor(1) as pool:
    answer = pool.submit(conversation.receive)
    connection, got = _read_one(inbox)
    inbox.send(connection, b'answer')
    assert answer.result(DEADLINE) == b'answer'
  assert codec.unpack(got) == [question]
  assert len(server.connections) == 1, 'it was asked on another connection'
  conversation.close()
  inbox.close()


class _SlowNetwork:
  """Takes little at a time, has room for little, and passes it on."""

  def __init__(self, address):
    self._listener = socket.create_server(('127.0.0.1', 0))
    self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    self.connections = 0
    self.server = ServerAddress(f'127.0.0.1:{self._listener.getsockname()[1]}')
    threading.Thread(target=self._accept, args=(address,), daemon=True).start()

  def _accept(self, address):
    with contextlib.suppress(OSError):
      while True:
        near, _ = self._listener.accept()
        self.connections += 1
        host, port = address.split(':')
        far = socket.create_connection((host, int(port)))
        for ends in ((near, far), (far, near)):
          threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

  def _pass_on(self, source, target):
    with contextlib.suppress(OSError):
      while piece := source.recv(1 << 12):
        target.sendall(piece)
    for end in (source, target):
      with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def test_what_takes_long_to_send_is_sent_whole_on_one_connection(answer, monkeypatch):
  monkeypatch.setattr(conversation_lib, 'POLL_SECONDS', 1e-3)
  network = _SlowNetwork(answer(lambda array: [array + 1]).address)
  array = np.arange(1 << 22, dtype=np.uint8)
  np.testing.assert_array_equal(ask(converse(network.server), array)[0], array + 1)
  assert network.connections == 1


def test_a_server_that_starts_late_is_found(answer):
  port = unused_port()
  conversation = converse(ServerAddress(f'localhost:{port}'))
  conversation.send(1)
  answer(lambda value: [value + 1], port)
  assert codec.unpack(conversation.receive()) == [2]


@pytest.mark.parametrize('shared_memory', ['memory', 'tcp'], indirect=True)
def test_requests_go_to_the_next_incarnation_when_the_connection_is_lost(shared_memory):
  port = unused_port()
  first = SocketServer(port, shared_memory=shared_memory)
  first.accept_messages_of(1 << 16)
  conversation = converse(ServerAddress(f'localhost:{port}'))
  rows = np.arange(10_000, dtype=np.float32)
  conversation.send('first', rows)
  connection, _ = _read_one(first)
  connection.send(b'answer')
  assert conversation.receive() == b'answer'
  conversation.send('question', rows + 1)
  _, message = _read_one(first)
  assert (len(message) < 100) == shared_memory
  answers = []
  waiter = threading.Thread(target=lambda: answers.append(conversation.receive()))
  waiter.start()
  first.close()
  second = SocketServer(port, shared_memory=shared_memory)
  second.accept_messages_of(1 << 16)
  connection, message = _read_one(second)
  question, array = codec.unpack(message)
  assert question == 'question'
  np.testing.assert_array_equal(array, rows + 1)
  connection.send(b'answer')
  waiter.join(DEADLINE)
  assert answers == [b'answer']
  second.close()


@pytest.mark.parametrize('listens', [True, False])
def test_a_waiting_client_notices_that_the_program_stops(answer, listens):
  silent = answer(lambda *question: ())
  server = silent if listens else ServerAddress(f'localhost:{unused_port()}')
  with pytest.raises(lifecycle.Stopped):
    ask(converse(server, lambda: True), 1)


def test_a_port_that_is_in_use_is_rejected():
  port = unused_port()
  inbox = SocketServer(port)
  with pytest.raises(OSError, match=f'port {port} cannot be listened on'):
    SocketServer(port)
  inbox.close()
  SocketServer(port).close()


_LIMITED_SERVER = """
import resource, sys
port, soft, hard, expected = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from nodes.inference.socket_server import SocketServer
inbox = SocketServer(port)
inbox.accept_messages_of(1)
print('listening', flush=True)
while expected:
  for connection, message in inbox.poll(None):
    inbox.send(connection, message)
    expected -= message == b'.'
"""


@pytest.mark.parametrize('hard', [256, 64])
def test_more_connections_are_taken_than_a_shell_allows_and_too_many_wait(hard):
  port = unused_port()
  numbers = [str(n) for n in (port, 48, hard, 100)]
  server = subprocess.Popen(
    [sys.executable, '-c', _LIMITED_SERVER, *numbers],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  with contextlib.ExitStack() as stack:
    stack.callback(server.kill)
    assert server.stdout.readline() == 'listening\n'
    address = ('127.0.0.1', port)
    clients = [stack.enter_context(socket.create_connection(address, DEADLINE)) for _ in range(100)]
    for client in clients:
      client.sendall(b'\0\0\0\1.')
    if hard == 64:
      assert 'may have 64 files and connections open): raise the limit' in server.stderr.readline()
      assert clients[0].recv(5, socket.MSG_WAITALL) == b'\0\0\0\1.'
      clients[0].sendall(b'\0\0\0\1!')  # The first connections are still served.
      assert clients[0].recv(5, socket.MSG_WAITALL) == b'\0\0\0\1!'
      for client in clients[:60]:
        client.close()
    _, errors = server.communicate(timeout=DEADLINE)
  assert (server.returncode, errors) == (0, '')


def test_a_limit_that_is_sure_to_be_too_low_is_rejected():
  inbox = SocketServer(unused_port())
  inbox.check_room(1)
  with pytest.raises(
    lifecycle.NonRetryableError, match=r'raise the limit \(ulimit -n\), or use fewer'
  ):
    inbox.check_room(1 << 40)
  inbox.close()
  SocketServer().check_room(1 << 40)  # It accepts no connections.


def test_a_silent_client_is_dropped_and_one_that_has_sent_a_message_may_pause(monkeypatch):
  now = 100.0
  clock = types.SimpleNamespace(monotonic=lambda: now)
  monkeypatch.setattr('nodes.inference.socket_server.time', clock)
  port = unused_port()
  inbox = SocketServer(port, idle_seconds=60.0)
  inbox.accept_messages_of(100)
  actor = ServerAddress(f'127.0.0.1:{port}').connect()
  slow, idle = (socket.create_connection(('127.0.0.1', port), DEADLINE) for _ in range(2))
  actor.send(b'question')
  connection, _ = _read_one(inbox)

  def poll():
    assert inbox.poll(0.0) == []

  wait_until(lambda: inbox.num_connections == 3, poll)
  now = 150.0
  slow.sendall(b'\0\0')  # Some of a message.
  assert inbox.poll(DEADLINE) == []  # It waits for them.
  now = 165.0
  poll()
  assert inbox.num_connections == 2 and idle.recv(1) == b''
  now = 205.0
  poll()
  assert inbox.num_connections == 2
  now = 215.0
  poll()
  assert inbox.num_connections == 1 and slow.recv(1) == b''
  now = 1e6
  poll()
  inbox.send(connection, b'answer')
  assert actor.receive() == b'answer'
  for end in (actor, slow, idle, inbox):
    end.close()
  assert inbox.num_connections == 0


def test_actors_that_connect_wait_for_few_polls_of_a_busy_server():
  port = unused_port()
  inbox = SocketServer(port)
  inbox.accept_messages_of(100)
  busy = [inbox.connect() for _ in range(400)]
  newcomers = [ServerAddress(f'127.0.0.1:{port}').connect() for _ in range(200)]
  for connection in newcomers:
    connection.send(b'first')
  polls, heard = 0, 0
  while heard < len(newcomers):
    for connection in busy:
      connection.send(b'again')
    heard += sum(message == b'first' for _, message in inbox.poll(DEADLINE))
    polls += 1
  assert polls <= 6
  for end in (*busy, *newcomers, inbox):
    end.close()


def test_memory_follows_received_and_not_announced_bytes():
  near, far = socket.socketpair()
  far.setblocking(False)
  receiver = MessageSocket(far, 1 << 30)
  with _traced_memory() as peak:
    near.send((1 << 30).to_bytes(4, 'big') + b'.')
    for piece in range(20):
      with pytest.raises(BlockingIOError):
        while receiver.receive() is None:
          pass
      # A buffer is copied where it grows, to twice its size at most.
      assert peak() < 4 * 5000 * piece + 50_000
      near.send(bytes(5000))
  near.close()
  far.close()


@contextlib.contextmanager
def _traced_memory():
  """Yields a function that returns the peak of the memory that Python has allocated within."""
  tracemalloc.start()
  try:
    yield lambda: tracemalloc.get_traced_memory()[1]
  finally:
    tracemalloc.stop()


def test_a_client_that_reads_no_replies_is_disconnected():
  inbox = SocketServer()
  inbox.accept_messages_of(100)
  near = inbox.connect()
  near.set_timeout(DEADLINE)
  near.send(b'question')
  connection, _ = _read_one(inbox)
  for _ in range(2):
    inbox.send(connection, bytes(1 << 24))
  inbox.poll(DEADLINE)
  with pytest.raises(ConnectionError):
    while True:
      near.receive()
  inbox.close()


def test_a_connection_knows_that_the_other_side_has_gone():
  near, far = socket.socketpair()
  connection = MessageSocket(far)
  near.send(b'\0\0\0\1.')
  assert not connection.closed_by_peer()
  near.settimeout(0.01)
  assert not MessageSocket(near).closed_by_peer()
  near.close()
  assert connection.receive() == b'.'
  assert connection.closed_by_peer()
  connection.close()
  assert connection.closed_by_peer()


def test_a_message_that_comes_in_pieces_is_put_together():
  inbox = SocketServer()
  inbox.accept_messages_of(1000)
  connection = inbox.connect()
  assert isinstance(connection, MessageSocket)
  message = codec.pack(list(range(100)).__repr__())
  whole = len(message).to_bytes(4, 'big') + message
  for i in range(len(whole) - 1):
    os.write(connection.fileno(), whole[i : i + 1])
    assert inbox.poll(DEADLINE) == []
  os.write(connection.fileno(), whole[-1:])
  ((_, got),) = inbox.poll(DEADLINE)
  assert got == message
  inbox.close()


def test_a_poll_is_woken_from_another_thread():
  inbox = SocketServer()
  waiter = threading.Thread(target=inbox.poll, args=(None,))
  waiter.start()
  inbox.wake()
  waiter.join(DEADLINE)
  assert not waiter.is_alive()
  inbox.close()
  inbox.wake()
  inbox.close()
