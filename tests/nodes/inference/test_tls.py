"""Actors and strangers at the TCP port of an inference server that uses TLS."""

import contextlib
import os
import socket
import ssl
import threading

import pytest

from nodes.inference import codec, socket_server
from nodes.inference.client import RetryingClient, ServerAddress
from nodes.inference.layout import layout
from nodes.inference.socket_server import SocketServer
from nodes.runtime import lifecycle
from tests import certificates
from tests.nodes.counter import CounterEnvironment
from tests.nodes.inference_clients import Client
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until


@pytest.fixture
def shared_memory():
  return False


@pytest.fixture(autouse=True)
def certificate(tmp_path, monkeypatch):
  path = certificates.write(tmp_path / 'run.pem')
  monkeypatch.setenv('COURIER_TLS', path)
  return path


def ask(client, value):
  client.send(value)
  return codec.unpack(client.receive())[0]


def client_of(server, should_stop=lambda: False):
  return RetryingClient(server, should_stop, 'a test')


def _end_of(stream):
  with contextlib.suppress(OSError):
    while stream.recv(100):
      pass


def _plain(stream):
  stream.sendall(b'\0\0\0\x05hello')


def _gone(stream):
  stream.sendall(b'\x16\x03\x01\x02')
  stream.shutdown(socket.SHUT_WR)


def _secured(path):
  def send(stream):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if path:
      context.load_cert_chain(path)
    with contextlib.suppress(OSError):
      secured = context.wrap_socket(stream)
      secured.sendall(b'\0\0\0\x05hello')
      _end_of(secured)

  return send


@pytest.mark.parametrize(
  'stranger, why',
  [
    ('plain', 'it does not use TLS 1.3'),
    ('gone', 'it has closed the connection'),
    ('nothing', 'it has no certificate'),
    ('another', "its certificate is not this run's"),
    ('silent', 'no TLS handshake within'),
  ],
)
def test_a_stranger_is_refused_while_actors_are_served(
  answer, tmp_path, caplog, monkeypatch, stranger, why
):
  if stranger == 'silent':
    monkeypatch.setattr(socket_server, '_HANDSHAKE_SECONDS', 0.5)
  strangers = {
    'plain': _plain,
    'gone': _gone,
    'nothing': _secured(''),
    'another': _secured(certificates.write(tmp_path / 'another.pem')),
    'silent': lambda stream: stream.sendall(b'\x16\x03\x01\x02'),
  }
  requests = []
  server = answer(lambda value: requests.append(value) or [value + 1])
  host, port = server.address.split(':')
  actor = client_of(server)
  assert ask(actor, 1) == 2
  for _ in range(2):
    with socket.create_connection((host, int(port)), DEADLINE) as stream:
      strangers[stranger](stream)
      assert ask(actor, 2) == 3
      _end_of(stream)
  assert ask(client_of(server), 3) == 4
  assert requests == [1, 2, 2, 3]
  (line,) = [line for line in caplog.messages if line.startswith('refused a connection')]
  assert '127.0.0.1:' in line and why in line


@pytest.mark.parametrize('theirs', ['another', 'none'])
def test_an_actor_says_that_the_handshake_failed_and_tries_again(
  answer, tmp_path, caplog, monkeypatch, certificate, theirs
):
  other = certificates.write(tmp_path / 'other.pem') if theirs == 'another' else ''
  monkeypatch.setenv('COURIER_TLS', other)
  server = answer(lambda value: [value + 1])
  monkeypatch.setenv('COURIER_TLS', certificate)
  failures = 'retrying the request of a test: the TLS handshake has failed: it'
  actor = client_of(server, lambda: caplog.text.count(failures) > 1)
  with pytest.raises(lifecycle.Stopped):
    ask(actor, 1)


def test_200_actors_connect_at_once(answer):
  server = answer(lambda value: [value + 1])
  replies = []

  def act(number):
    replies.append(ask(client_of(server), number))

  threads = [threading.Thread(target=act, args=(number,)) for number in range(200)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(DEADLINE)
  assert sorted(replies) == [*range(1, 201)]


def test_handshakes_do_not_hold_up_a_server_with_a_single_thread(make_server):
  port = unused_port()
  _, sink = make_server(layout(2, 2, 1), threads=1, inbox=SocketServer(port, shared_memory=False))
  address = ServerAddress(f'127.0.0.1:{port}')
  first = Client(address, CounterEnvironment([100, 100]))
  first.step()
  with contextlib.ExitStack() as stack:
    for sent in (b'', b'\x16', b'\x16\x03\x01\x02'):
      stranger = stack.enter_context(socket.create_connection(('127.0.0.1', port), DEADLINE))
      stranger.sendall(sent)
    second = Client(address, CounterEnvironment([100, 100]), 'actor/1')
    for _ in range(9):  # Two unrolls.
      assert first.step() is not None and second.step() is not None
  assert len(sink.unrolls) == 4


def test_a_unix_socket_serves_its_own_user_only(monkeypatch, caplog):
  port, user = unused_port(), os.geteuid()
  with contextlib.closing(SocketServer(port)) as inbox:
    stranger = ServerAddress(f'127.0.0.1:{port}').connect()
    stranger.send(b'hello')
    monkeypatch.setattr(os, 'geteuid', lambda: user + 1)
    line = f'refused a connection of an actor from this machine: it belongs to user {user}'
    wait_until(lambda: line in caplog.messages, lambda: inbox.poll(0.01))
    with pytest.raises(OSError):
      stranger.receive()
    stranger.close()
