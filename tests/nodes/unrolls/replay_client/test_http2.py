"""The connection to a server whose every byte the test chooses."""

import socket
import struct

import pytest

from nodes.unrolls.replay_client import ReplayAwayError, ReplayError, errors, hpack
from nodes.unrolls.replay_client.http2 import Connection

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
  0,
  1,
  3,
  4,
  6,
  7,
  8,
  9,
)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
OK = hpack.encode([('grpc-status', '0')])


class Server:
  """The other side: sends frames, and takes apart what arrives."""

  def __init__(self):
    self._socket, there = socket.socketpair()
    for end in (self._socket, there):
      end.setblocking(False)
    self.connection = Connection(there)
    self._received = b''

  def send(self, kind, payload=b'', flags=0, stream=0):
    self._socket.sendall(frame(kind, payload, flags, stream))

  def send_bytes(self, data):
    self._socket.sendall(data)

  def frames(self):
    """Returns the kind, the flags, the stream and the payload of each frame that has arrived."""
    self.connection.advance()
    try:
      while data := self._socket.recv(1 << 20):
        self._received += data
        self.connection.advance()
    except BlockingIOError:
      pass
    found, rest = [], self._received.removeprefix(PREFACE)
    while rest:
      size = int.from_bytes(rest[:3], 'big')
      found.append((*struct.unpack('>BBI', rest[3:9]), rest[9 : 9 + size]))
      rest = rest[9 + size :]
    self._received = b''
    return found

  def close(self):
    self._socket.close()
    self.connection.close()


def frame(kind, payload=b'', flags=0, stream=0):
  return len(payload).to_bytes(3, 'big') + struct.pack('>BBI', kind, flags, stream) + payload


def message(data):
  return struct.pack('>BI', 0, len(data)) + data


def setting(name, value):
  return struct.pack('>HI', name, value)


@pytest.fixture
def server():
  server = Server()
  server.connection.begin('/service/Method', 'localhost:1')
  yield server
  server.close()


def test_a_message_waits_for_the_windows_of_the_server_and_fits_its_frames(server):
  kinds = [kind for kind, *_ in server.frames()]
  assert kinds == [SETTINGS, WINDOW_UPDATE, HEADERS]
  server.send(SETTINGS, setting(4, 10) + setting(5, 7))  # The window of a stream; of a frame.
  assert server.frames() == [(SETTINGS, ACK, 0, b'')]
  server.connection.send([b'0123456789', memoryview(b'abcdefghi')], last=True)
  whole = message(b'0123456789abcdefghi')
  assert server.frames() == [(DATA, 0, 1, whole[:7]), (DATA, 0, 1, whole[7:10])]
  server.send(WINDOW_UPDATE, struct.pack('>I', 5), stream=1)
  assert server.frames() == [(DATA, 0, 1, whole[10:15])]
  server.send(SETTINGS, setting(4, 1000) + setting(5, 1000))
  assert server.frames()[1:] == [(DATA, END_STREAM, 1, whole[15:])]


def test_the_window_of_the_connection_counts_too(server):
  server.frames()
  server.send(SETTINGS, setting(4, 1 << 20))
  server.connection.send([bytes(100_000)])
  assert sum(len(payload) for kind, *_, payload in server.frames() if kind == DATA) == 65535
  server.send(WINDOW_UPDATE, struct.pack('>I', 1 << 20))
  assert sum(len(payload) for *_, payload in server.frames()) == 100_005 - 65535


def test_messages_are_whole_however_they_arrive(server):
  sent = [b'', b'abc', bytes(range(256)) * 2000, b'z' * 70_000]
  body = b''.join(map(message, sent))
  stream = frame(HEADERS, hpack.encode([]) + b'\x88', END_HEADERS, 1)
  sizes = [1, 2, 3, 10, 100, 70_000, 300_000]
  for size in sizes:
    stream += frame(DATA, body[:size], 0, 1)
    body = body[size:]
  stream += frame(DATA, body, 0, 1)
  stream += frame(HEADERS, OK[:3], END_STREAM, 1) + frame(CONTINUATION, OK[3:], END_HEADERS, 1)
  received = []
  for begin in range(0, len(stream), 50_001):
    server.send_bytes(stream[begin : begin + 50_001])
    server.connection.advance()
    received += map(bytes, server.connection.messages)
    server.connection.messages = []
  assert received == sent
  assert server.connection.check() and server.connection.is_reusable


def test_a_ping_is_answered(server):
  server.frames()
  server.send(PING, b'12345678')
  assert server.frames() == [(PING, ACK, 0, b'12345678')]


@pytest.mark.parametrize(
  'kind, payload, flags, error, text',
  [
    (HEADERS, [('grpc-status', '5'), ('grpc-message', 'no %C3%A4')], 5, ReplayError, 'no ä'),
    (HEADERS, [('grpc-status', '14'), ('grpc-message', 'full')], 5, ReplayAwayError, 'full'),
    (RST_STREAM, struct.pack('>I', 8), 0, ReplayAwayError, 'reset'),
    (GOAWAY, struct.pack('>II', 0, 0), 0, ReplayAwayError, 'no more calls'),
    (DATA, b'', END_STREAM, ReplayAwayError, 'ended the call'),
  ],
)
def test_a_call_ends_with_an_error_that_says_whether_to_try_again(
  server, kind, payload, flags, error, text
):
  block = hpack.encode(payload) if isinstance(payload, list) else payload
  server.send(kind, block, flags, 0 if kind == GOAWAY else 1)
  server.connection.advance()
  with pytest.raises(errors.ReplayError, match=text) as found:
    server.connection.check()
  assert type(found.value) is error and not server.connection.is_reusable


def test_what_arrives_before_the_end_of_the_connection_counts(server):
  server.send(DATA, message(b'last'), 0, 1)
  server.close = server.connection.close
  server._socket.close()
  server.connection.advance()
  assert [bytes(m) for m in server.connection.messages] == [b'last']
  with pytest.raises(OSError):
    server.connection.advance()


@pytest.mark.parametrize(
  'data',
  [
    b'HTTP/1.1 400 Bad Request\r\n\r\n',
    frame(DATA, struct.pack('>BI', 1, 0), 0, 1),
    frame(DATA, b'12345', 0, 3),
    frame(HEADERS, b'\xff', END_HEADERS, 1),
  ],
)
def test_a_server_that_breaks_the_protocol_is_left(server, data):
  server.send_bytes(data)
  with pytest.raises(ConnectionError):
    server.connection.advance()


def test_headers_in_a_huffman_code_are_read():
  # From appendix C of RFC 7541.
  value = bytes.fromhex('f1e3c2e5f23a6ba0ab90f4ff')
  block = b'\x20\x88\x00' + bytes([12]) + b'grpc-message' + bytes([0x80 | len(value)]) + value
  assert hpack.decode(block) == {':status': '200', 'grpc-message': 'www.example.com'}


@pytest.mark.parametrize(
  'block', [b'\xc0', b'\x00\x05ab', b'\x00', b'\x80', b'\x7f\xff\xff\xff\xff\xff']
)
def test_malformed_headers_are_refused(block):
  with pytest.raises(ValueError):
    hpack.decode(block)
