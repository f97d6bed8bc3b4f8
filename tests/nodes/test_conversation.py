"""Questions to a server that is late, slow, lost, or never there."""

import contextlib
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest

from launchers import core
from nodes import lifecycle, wire
from nodes.connection import Connection
from nodes.conversation import Conversation, Remote
from nodes.inbox import Inbox

DEADLINE = 60


def converse(server, should_stop=lambda: False, **options):
  return Conversation(server, should_stop, 'a test', **options)


def ask(conversation, *values):
  conversation.ask(wire.pack(*values))
  return wire.unpack(conversation.answer())


def test_questions_and_answers_of_any_size_arrive_whole(answer):
  conversation = converse(answer(lambda array: [array + 1]))
  for size in (0, 1, 1000, 100_000):
    array = np.arange(size, dtype=np.uint8)
    np.testing.assert_array_equal(ask(conversation, array)[0], array + 1)


def test_an_overdue_question_is_asked_again_on_another_connection(answer):
  asked = []

  def third_time(value):
    asked.append(value)
    return [value] if len(asked) == 3 else ()

  conversation = converse(answer(third_time), overdue_seconds=0.0)
  assert ask(conversation, 7) == [7]
  assert asked == [7, 7, 7]


def test_a_server_that_comes_late_is_found(answer):
  (port,) = core.free_ports(1)
  conversation = converse(Remote(f'localhost:{port}'))
  conversation.ask(wire.pack(1))
  answer(lambda value: [value + 1], port)
  assert wire.unpack(conversation.answer()) == [2]


def test_the_next_life_of_a_server_is_asked_when_the_connection_is_lost():
  (port,) = core.free_ports(1)
  first = Inbox(port)
  first.accept_messages_of(100)
  conversation = converse(Remote(f'localhost:{port}'))
  conversation.ask(wire.pack('question'))
  messages = []
  while not messages:
    messages = first.poll(DEADLINE)
  answers = []
  waiter = threading.Thread(target=lambda: answers.append(conversation.answer()))
  waiter.start()
  first.close()
  second = Inbox(port)
  second.accept_messages_of(100)
  messages = []
  while not messages:
    messages = second.poll(DEADLINE)
  connection, message = messages[0]
  assert wire.unpack(message) == ['question']
  connection.send(b'answer')
  waiter.join(DEADLINE)
  assert answers == [b'answer']
  second.close()


@pytest.mark.parametrize('listens', [True, False])
def test_who_waits_notices_that_the_program_stops(answer, listens):
  silent = answer(lambda *question: ())
  server = silent if listens else Remote(f'localhost:{core.free_ports(1)[0]}')
  with pytest.raises(lifecycle.Stopped):
    ask(converse(server, lambda: True), 1)


def test_a_port_that_is_in_use_is_refused():
  (port,) = core.free_ports(1)
  inbox = Inbox(port)
  with pytest.raises(OSError, match=f'port {port} cannot be listened on'):
    Inbox(port)
  inbox.close()
  Inbox(port).close()


_LIMITED_SERVER = """
import resource, sys
port, soft, hard, expected = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from nodes.inbox import Inbox
inbox = Inbox(port)
inbox.accept_messages_of(1)
print('listening', flush=True)
got = set()
while len(got) < expected:
  got |= {connection.fileno() for connection, _ in inbox.poll(None)}
print(len(got))
"""


@pytest.mark.parametrize('hard, code', [(256, 0), (64, 1)])
def test_more_connections_are_taken_than_a_shell_allows_and_too_many_are_an_error(hard, code):
  (port,) = core.free_ports(1)
  numbers = [str(n) for n in (port, 48, hard, 100)]
  server = subprocess.Popen(
    [sys.executable, '-c', _LIMITED_SERVER, *numbers],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  with contextlib.ExitStack() as clients:
    clients.callback(server.kill)
    assert server.stdout.readline() == 'listening\n'
    with contextlib.suppress(OSError):  # The server may have given up by now.
      for _ in range(100):
        stream = clients.enter_context(socket.create_connection(('localhost', port), DEADLINE))
        stream.sendall(b'\0\0\0\1.')
    output, errors = server.communicate(timeout=DEADLINE)
  assert server.returncode == code, errors
  if code:
    assert 'may have 64 files and connections open): raise the limit (ulimit -n)' in errors
  else:
    assert output == '100\n'


def test_a_message_that_comes_in_pieces_is_put_together():
  inbox = Inbox()
  inbox.accept_messages_of(1000)
  connection = inbox.connect()
  assert isinstance(connection, Connection)
  message = wire.pack(list(range(100)).__repr__())
  stream = connection._socket
  whole = len(message).to_bytes(4, 'big') + message
  for i in range(len(whole) - 1):
    stream.send(whole[i : i + 1])
    assert inbox.poll(DEADLINE) == []
  stream.send(whole[-1:])
  ((_, got),) = inbox.poll(DEADLINE)
  assert got == message
  inbox.close()


def test_a_poll_is_woken_from_another_thread():
  inbox = Inbox()
  waiter = threading.Thread(target=inbox.poll, args=(None,))
  waiter.start()
  inbox.wake()
  waiter.join(DEADLINE)
  assert not waiter.is_alive()
  inbox.close()
  inbox.wake()
  inbox.close()
