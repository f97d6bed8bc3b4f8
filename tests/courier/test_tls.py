"""TLS: who gets in, who does not, and what both sides say about it."""

import contextlib
import os
import pathlib
import socket
import ssl
import struct
import threading

import numpy as np
import pytest

import courier
from courier import sockets, tls
from courier.python import py_server
from tests import certificates
from tests.courier.conftest import DEADLINE
from tests.ports import unused_port
from tests.waiting import wait_until


def test_without_the_variable_there_is_no_tls(monkeypatch):
  monkeypatch.delenv('COURIER_TLS', raising=False)
  assert tls.server_context() is None and tls.client_context() is None


@pytest.mark.parametrize(
  'content, why',
  [
    (None, 'cannot be read: No such file or directory'),
    ('nothing', 'does not hold an unencrypted private key and its certificate'),
    ('KEY', 'does not hold an unencrypted private key and its certificate'),
    ('CERTIFICATE', 'does not hold an unencrypted private key and its certificate'),
  ],
)
def test_a_file_that_is_wrong_is_named_by_servers_and_clients(
  tmp_path, monkeypatch, certificate, content, why
):
  path = tmp_path / 'wrong.pem'
  if content is not None:
    parts = pathlib.Path(certificate).read_text().split('-----BEGIN ')
    path.write_text(''.join(f'-----BEGIN {part}' for part in parts if content in part[:20]))
  monkeypatch.setenv('COURIER_TLS', str(path))
  with pytest.raises(ValueError, match=f'COURIER_TLS names {path}, which {why}'):
    courier.Server().Start()
  with pytest.raises(courier.StatusNotOk, match=f'COURIER_TLS names {path}, which {why}'):
    courier.Client(f'localhost:{unused_port()}').add(1, 2)


def test_the_file_is_read_once(over_tls, certificate, serve):
  server = serve(add=lambda a, b: a + b)
  os.remove(certificate)
  assert courier.Client(server.address, call_timeout=DEADLINE).add(1, 2) == 3
  assert tls.server_context() is tls.server_context()


@pytest.fixture
def server(over_tls, serve):
  """A server whose method must not be called, and a client of it that is connected."""
  server = serve(add=lambda a, b: a + b)
  server.client = courier.Client(server.address, call_timeout=DEADLINE)
  assert server.client.add(1, 2) == 3
  return server


def _end_of(stream):
  with contextlib.suppress(OSError):
    while stream.recv(100):
      pass


def _plain(server, tmp_path):
  with socket.create_connection(('127.0.0.1', server.port), DEADLINE) as stream:
    stream.sendall(b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n')
    _end_of(stream)


def _scan(server, tmp_path):
  with socket.create_connection(('127.0.0.1', server.port), DEADLINE) as stream:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))  # A reset.


def _half(server, tmp_path):
  """Sends the first half of the first message of a handshake."""
  received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
  hello = tls.client_context().wrap_bio(received, sent)
  with contextlib.suppress(ssl.SSLWantReadError):
    hello.do_handshake()
  message = sent.read()
  with socket.create_connection(('127.0.0.1', server.port), DEADLINE) as stream:
    stream.sendall(message[: len(message) // 2])
    stream.shutdown(socket.SHUT_WR)
    _end_of(stream)


def _connect(server, path=None):
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
  if path:
    context.load_cert_chain(path)
  stream = socket.create_connection(('127.0.0.1', server.port), DEADLINE)
  with contextlib.suppress(OSError), context.wrap_socket(stream) as secured:
    secured.sendall(b'courier\x02')
    _end_of(secured)


def _nothing(server, tmp_path):
  _connect(server)


def _another(server, tmp_path):
  _connect(server, certificates.write(tmp_path / 'another.pem'))


def _old(server, tmp_path):
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
  context.load_cert_chain(os.environ['COURIER_TLS'])
  context.maximum_version = ssl.TLSVersion.TLSv1_2
  stream = socket.create_connection(('127.0.0.1', server.port), DEADLINE)
  with pytest.raises(ssl.SSLError):
    context.wrap_socket(stream)


@pytest.mark.parametrize(
  'stranger, why',
  [
    (_plain, 'it does not use TLS 1.3'),
    (_scan, 'it has closed the connection'),
    (_half, 'it has closed the connection'),
    (_nothing, 'it has no certificate'),
    (_another, "its certificate is not this run's"),
    (_old, 'it does not use TLS 1.3'),
  ],
)
def test_a_stranger_is_refused_and_the_log_says_why_once(server, tmp_path, caplog, stranger, why):
  for _ in range(3):
    stranger(server, tmp_path)
  assert server.client.add(1, 2) == 3
  assert courier.Client(server.address, call_timeout=DEADLINE).add(1, 2) == 3
  (line,) = [record.message for record in caplog.records if record.name == 'courier']
  assert line.startswith(f'port {server.port}: refused a connection from 127.0.0.1:')
  assert line.endswith(f': {why}')


def test_nothing_that_a_stranger_sends_is_unpickled(server, serve, monkeypatch):
  begun = []
  monkeypatch.setattr('courier.wire.Message.value', lambda message: begun.append(message))
  with socket.create_connection(('127.0.0.1', server.port), DEADLINE) as stream:
    stream.sendall(b'courier\x02\x01' + bytes(15) + bytes(1000))
    _end_of(stream)
  assert not begun


def test_a_handshake_that_goes_no_further_ends_and_holds_nobody_up(server, caplog, monkeypatch):
  monkeypatch.setattr(py_server, '_PREAMBLE_SECONDS', 0.5)
  with socket.create_connection(('127.0.0.1', server.port), DEADLINE) as stream:
    stream.sendall(b'\x16\x03\x01\x02')
    assert courier.Client(server.address, call_timeout=DEADLINE).add(1, 2) == 3
    _end_of(stream)
  assert 'no TLS handshake within' in caplog.text


def test_a_peer_that_says_goodbye_is_disconnected(server):
  stream = socket.create_connection(('127.0.0.1', server.port), DEADLINE)
  with tls.client_context().wrap_socket(stream) as secured:
    assert secured.recv(100) == b'courier\x02'
    with contextlib.suppress(OSError):
      secured.unwrap()
    _end_of(secured)
  assert server.client.add(1, 2) == 3


def test_an_expired_certificate_is_refused_by_both_sides(
  tmp_path, monkeypatch, over_tls, serve, caplog
):
  expired = certificates.write(tmp_path / 'expired.pem', days=-1)
  monkeypatch.setenv('COURIER_TLS', expired)
  server, why = serve(), 'its certificate is not accepted: certificate has expired'
  with pytest.raises(courier.StatusNotOk, match=why):
    courier.Client(server.address, wait_for_ready=False).add(1, 2)
  _connect(server, expired)
  wait_until(
    lambda: [line for line in caplog.messages if 'refused a connection' in line and why in line]
  )


@pytest.mark.parametrize(
  'theirs, why',
  [(True, "its certificate is not this run's"), (False, 'it does not use TLS 1.3')],
  ids=['another', 'plain'],
)
def test_a_client_says_why_and_waits_for_the_right_server(
  tmp_path, monkeypatch, caplog, over_tls, serve, theirs, why
):
  own = os.environ['COURIER_TLS']
  monkeypatch.setenv('COURIER_TLS', certificates.write(tmp_path / 'other.pem') if theirs else '')
  wrong = serve(add=lambda a, b: 0)
  monkeypatch.setenv('COURIER_TLS', own)
  failed = f'{wrong.address}: the TLS handshake with the server has failed: {why}'
  with pytest.raises(courier.StatusNotOk, match=failed):
    courier.Client(wrong.address, wait_for_ready=False).add(1, 2)
  late = courier.Client(wrong.address, call_timeout=0.2)
  wait_until(
    lambda: (
      f'Deadline Exceeded; failed to connect to all addresses: {failed}'
      in str(late.futures.add(1, 2).exception())
    )
  )
  assert len([record for record in caplog.records if failed in record.message]) == 1
  reply = courier.Client(wrong.address, call_timeout=DEADLINE).futures.add(1, 2)
  wrong.Stop()
  serve(wrong.port, add=lambda a, b: a + b)
  assert reply.result(DEADLINE) == 3


def test_200_handshakes_at_once(start, over_tls):
  _, port = start()
  clients = [courier.Client(f'localhost:{port}', call_timeout=DEADLINE) for _ in range(200)]
  replies = [client.futures.add(i, 1) for i, client in enumerate(clients)]
  assert [reply.result() for reply in replies] == [*range(1, 201)]


def test_large_messages_pass_each_other_while_calls_are_cancelled(over_tls, connect):
  go = threading.Event()
  client = connect(echo=lambda array: array, wait=lambda: go.wait(DEADLINE))
  arrays = [np.full(size, i, np.uint8) for i, size in enumerate([0, 10, 16384, 300_000] * 25)]
  waiting = [client.futures.wait() for _ in range(3)]
  replies = [client.futures.echo(array) for array in arrays]
  assert all(call.cancel() for call in waiting)
  for array, reply in zip(arrays, replies, strict=True):
    np.testing.assert_array_equal(reply.result(DEADLINE), array)
  go.set()


def test_a_unix_socket_has_no_tls_and_serves_its_own_user_only(
  certificate, monkeypatch, serve, caplog
):
  monkeypatch.setenv('COURIER_TLS', certificate)
  server = serve()
  with socket.socket(socket.AF_UNIX) as stream:
    stream.settimeout(DEADLINE)
    stream.connect(sockets._unix_name(server.port))
    assert stream.recv(100) == b'courier\x02'
  user = os.geteuid()
  monkeypatch.setattr(os, 'geteuid', lambda: user + 1)
  with socket.socket(socket.AF_UNIX) as stream:
    stream.settimeout(DEADLINE)
    stream.connect(sockets._unix_name(server.port))
    _end_of(stream)
  line = f'port {server.port}: refused a connection from this machine: it belongs to user {user}'
  wait_until(lambda: line in caplog.messages)
