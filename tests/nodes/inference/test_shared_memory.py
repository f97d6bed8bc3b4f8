"""Requests whose large arrays are in memory that client and server share."""

import contextlib
import errno
import fcntl
import gc
import os
import socket
import subprocess
import sys

import msgpack
import numpy as np
import pytest

from nodes.inference import codec, shared_memory
from nodes.inference.client import RetryingClient, ServerAddress
from nodes.inference.message_socket import MessageSocket
from nodes.inference.shared_memory import SharedMemory
from nodes.inference.socket_server import SocketServer
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until

ROWS = np.arange(10_000, dtype=np.uint16)
MAPPED = 'memfd:launchpod-rows'
_create = SharedMemory.create


@pytest.fixture
def inbox():
  port = unused_port()
  server = SocketServer(port)
  server.accept_messages_of(1 << 20)
  server.address = ServerAddress(f'127.0.0.1:{port}')
  yield server
  server.close()


@pytest.fixture
def conversation(inbox):
  client = RetryingClient(inbox.address, lambda: False, 'a test')
  yield client
  client.close()


def _read_one(inbox):
  return wait_until(lambda: inbox.poll(DEADLINE))[0]


def _exchange(conversation, inbox, *request):
  """Returns the size of a message and what it holds."""
  conversation.send(*request)
  connection, message = _read_one(inbox)
  values = [np.copy(v) for v in codec.unpack(message, connection.memory)]
  inbox.send(connection, b'answer')
  assert conversation.receive() == b'answer'
  return len(message), values


def _open_files():
  return len(os.listdir('/proc/self/fd'))


def _maps():
  with open('/proc/self/maps') as f:
    return f.read().count(MAPPED)


@pytest.fixture
def maps():
  """Returns a function that counts the mappings of the test."""
  gc.collect()  # Those of earlier tests that end later would count as well.
  before = _maps()
  return lambda: _maps() - before


def test_large_arrays_of_later_requests_are_in_memory_and_the_rest_in_the_message(
  conversation, inbox
):
  small = np.arange(3)
  for step in range(4):
    size, (number, large, few, tall) = _exchange(
      conversation, inbox, step, ROWS + step, small, ROWS.reshape(2, -1).T
    )
    assert (size < 200) == (step > 0)
    assert number == step
    np.testing.assert_array_equal(large, ROWS + step)
    np.testing.assert_array_equal(few, small)
    np.testing.assert_array_equal(tall, ROWS.reshape(2, -1).T)
  # What does not fit goes whole.
  size, (larger,) = _exchange(conversation, inbox, np.tile(ROWS, 3))
  assert size > 6 * len(ROWS)
  np.testing.assert_array_equal(larger, np.tile(ROWS, 3))


def test_memory_and_files_are_released_with_the_connection(inbox, maps):
  files = _open_files()
  for _ in range(3):
    conversation = RetryingClient(inbox.address, lambda: False, 'a test')
    _exchange(conversation, inbox, ROWS)
    assert maps() == 2
    conversation.close()
    wait_until(lambda: not inbox.num_connections, lambda: inbox.poll(0.01))
  assert (maps(), _open_files()) == (0, files)


_KILLED = """
import sys
import numpy as np
from nodes.inference.client import RetryingClient, ServerAddress
conversation = RetryingClient(ServerAddress(sys.argv[1]), lambda: False, 'a test')
rows = np.arange(10_000, dtype=np.uint16)
conversation.send(rows)
conversation.receive()
conversation.send(rows)
conversation.receive()
"""


def test_rows_of_a_client_that_is_killed_stay_readable_and_nothing_is_left_of_it(inbox, maps):
  client = subprocess.Popen([sys.executable, '-c', _KILLED, inbox.address.address])
  try:
    connection, _ = _read_one(inbox)
    inbox.send(connection, b'answer')
    connection, message = _read_one(inbox)
    assert len(message) < 100
  finally:
    client.kill()
    client.wait()
  (rows,) = codec.unpack(message, connection.memory)
  wait_until(lambda: not inbox.num_connections, lambda: inbox.poll(0.01))
  np.testing.assert_array_equal(rows, ROWS)
  assert not rows.flags.writeable
  assert maps() == 1
  del rows, connection
  assert maps() == 0


@pytest.mark.parametrize(
  'shape, offset',
  [
    ([1000], 0),
    ([1000], -64),
    ([1000], 1 << 70),
    ([10_000_000], 64),
    ([-1000], 10_000),
    ([10_000], 128),
  ],
)
def test_an_array_that_is_not_within_the_memory_is_rejected_in_one_sentence(shape, offset):
  memory, descriptor = SharedMemory.create(shared_memory.bytes_for([ROWS]))
  os.close(descriptor)
  message = msgpack.packb([('<u2', [10_000], 64)])
  assert codec.unpack(message, memory)[0].nbytes == ROWS.nbytes  # All of it.
  end = offset + 2 * shape[0]
  if offset < 1 << 64:
    message = msgpack.packb([('<u2', shape, offset)])
    with pytest.raises(ValueError, match=f'from byte {offset} to {end} is not in the 20096 bytes'):
      codec.unpack(message, memory)
  with pytest.raises(ValueError, match='is not in the 20096 bytes'):
    memory.array('<u2', shape, offset)
  with pytest.raises(ValueError, match='memory that its sender does not share'):
    codec.unpack(message)


def _unsealed():
  descriptor = os.memfd_create('launchpod-rows', os.MFD_ALLOW_SEALING)
  os.ftruncate(descriptor, 1 << 12)
  return descriptor


def _too_large():
  return _create(1 << 21)[1]


def _a_directory():
  return os.open('/', os.O_RDONLY)


@pytest.mark.parametrize(
  'make, reason',
  [
    (_unsealed, 'its size may change'),
    (_too_large, 'it has 2097152 bytes'),
    (_a_directory, 'Invalid argument'),
  ],
)
def test_memory_that_may_shrink_or_is_no_memory_is_rejected_and_rows_are_sent_whole(
  inbox, conversation, monkeypatch, caplog, maps, make, reason
):
  files = _open_files()
  made = []

  def create(num_bytes):
    made.append(make())
    memory, descriptor = _create(num_bytes)
    os.close(descriptor)
    return memory, made[-1]

  monkeypatch.setattr(SharedMemory, 'create', create)
  monkeypatch.setattr('absl.logging.log_first_n', _log_all)
  for step in range(3):
    size, (array,) = _exchange(conversation, inbox, ROWS + step)
    assert size > ROWS.nbytes
    np.testing.assert_array_equal(array, ROWS + step)
  assert len(made) == 1 and maps() == 1  # The client's.
  (warning,) = [r.getMessage() for r in caplog.records if 'its memory is refused' in r.getMessage()]
  assert reason in warning
  conversation.close()
  wait_until(lambda: not inbox.num_connections, lambda: inbox.poll(0.01))
  assert _open_files() == files


def _log_all(level, message, n, *args):
  from absl import logging

  logging.log(level, message, *args)


def test_without_shared_memory_rows_are_sent_whole(inbox, conversation, monkeypatch, caplog):
  def fail(*_):
    raise OSError(errno.ENOSYS, 'Function not implemented')

  monkeypatch.setattr(os, 'memfd_create', fail)
  monkeypatch.setattr('absl.logging.log_first_n', _log_all)
  caplog.set_level('INFO', logger='absl')
  for step in range(3):
    size, (array,) = _exchange(conversation, inbox, ROWS + step)
    assert size > ROWS.nbytes
    np.testing.assert_array_equal(array, ROWS + step)
  (line,) = [r.getMessage() for r in caplog.records if 'no memory can be shared' in r.getMessage()]
  assert 'Function not implemented' in line


def _family(server):
  with (
    contextlib.closing(server.connect()) as connection,
    socket.socket(fileno=os.dup(connection.fileno())) as stream,
  ):
    return stream.family


@pytest.mark.parametrize('host', ['127.0.0.1', 'localhost', '[::1]'])
def test_clients_of_this_machine_connect_over_a_unix_socket(host):
  port = unused_port()
  server = ServerAddress(f'{host}:{port}')
  with contextlib.closing(SocketServer(port)):
    assert _family(server) == socket.AF_UNIX
  with contextlib.closing(SocketServer(port, shared_memory=False)):
    assert _family(server) != socket.AF_UNIX
  with pytest.raises(OSError):
    server.connect()


def test_a_unix_socket_of_somebody_else_is_left_alone(monkeypatch, caplog):
  caplog.set_level('INFO', logger='absl')
  port = unused_port()
  server = ServerAddress(f'localhost:{port}')
  with socket.socket(socket.AF_UNIX) as other:
    other.bind(f'\0launchpod-inference-{port}')
    with contextlib.closing(SocketServer(port)):
      assert 'over TCP: no Unix socket' in caplog.text
      assert _family(server) != socket.AF_UNIX
      other.listen()
      assert _family(server) == socket.AF_UNIX
      monkeypatch.setattr(os, 'geteuid', lambda: 12345)
      assert _family(server) != socket.AF_UNIX


def test_a_limit_of_open_files_without_room_for_memory_leaves_rows_to_the_socket(
  inbox, conversation, monkeypatch, maps
):
  monkeypatch.setattr('nodes.runtime.open_files.left', lambda: 3)
  inbox.check_room(2)
  for _ in range(2):
    assert _exchange(conversation, inbox, ROWS)[0] > ROWS.nbytes
  assert maps() == 1


def test_what_is_created_cannot_change_its_size():
  _, descriptor = SharedMemory.create(1 << 12)
  for size in (0, 1 << 13):
    with pytest.raises(PermissionError):
      os.ftruncate(descriptor, size)
  with pytest.raises(PermissionError):
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
  os.close(descriptor)


def test_many_descriptors_at_once_are_all_closed():
  near, far = socket.socketpair(socket.AF_UNIX)
  files = _open_files()
  receiver = MessageSocket(far, max_shared_bytes=1 << 20)
  passed = [SharedMemory.create(1 << 12)[1] for _ in range(5)]
  socket.send_fds(near, [b'\0\0\0\1.'], passed)
  for descriptor in passed:
    os.close(descriptor)
  assert receiver.receive() == b'.'
  assert receiver.memory is not None
  assert _open_files() == files + 1  # The mapping's.
  near.close()
  receiver.close()
