"""Servers that restart, stop or never reply; strangers; forks; the ends of processes."""

import contextlib
import errno
import os
import signal
import socket
import threading
import types

import pytest

import courier
from courier import sockets, wire
from courier.python import py_server
from tests.agents.subprocesses import run_python
from tests.courier import hostile
from tests.courier.conftest import DEADLINE
from tests.ports import unused_port


def test_a_client_waits_until_its_server_is_up():
  server = courier.Server()
  client = courier.Client(server.address, call_timeout=DEADLINE)
  reply = client.futures.value()
  server.Bind('value', lambda: 1000)
  server.Start()
  assert reply.result(DEADLINE) == 1000
  server.Stop()


@pytest.mark.parametrize('transport', ['unix', 'tls'])
def test_calls_without_a_reply_are_sent_again_to_the_next_server_on_the_port(
  start, request, transport
):
  if transport == 'tls':
    request.getfixturevalue('over_tls')
  process, port = start()
  client = courier.Client(f'localhost:{port}', call_timeout=DEADLINE)
  assert client.pid() == process.pid
  pending = [client.futures.sleep(DEADLINE), *(client.futures.pid() for _ in range(20))]
  process.kill()
  process.wait()
  late = client.futures.pid()
  successor, _ = start(port)
  for reply in pending[1:]:
    assert reply.result(DEADLINE) in (process.pid, successor.pid)
  assert late.result(DEADLINE) == client.pid() == successor.pid
  pending[0].cancel()


@pytest.mark.parametrize('transport', ['unix', 'tcp', 'tls'])
def test_a_server_that_hangs_ends_no_call_but_by_its_deadline(
  start, monkeypatch, request, transport
):
  if transport == 'tls':
    request.getfixturevalue('over_tls')
  if transport == 'tcp':
    monkeypatch.setattr(sockets, '_is_here', lambda *address: False)
  process, port = start()
  client = courier.Client(f'localhost:{port}', call_timeout=1)
  assert client.add(1, 2) == 3
  process.send_signal(signal.SIGSTOP)
  large = client.futures.add(bytes(50_000_000), b'')  # More than a socket takes: `futures` returns.
  with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded'):
    client.add(1, 2)
  with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded'):
    large.result(DEADLINE)
  process.send_signal(signal.SIGCONT)
  patient = courier.Client(f'localhost:{port}', call_timeout=DEADLINE)
  assert patient.add(1, 2) == 3


@pytest.mark.slow
def test_a_server_that_accepts_and_says_nothing_ends_no_call_but_by_its_deadline():
  with socket.create_server(('', 0)) as silent:
    client = courier.Client(f'localhost:{silent.getsockname()[1]}', call_timeout=1)
    with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded'):
      client.add(1, 2)
    with pytest.raises(courier.StatusNotOk, match='Deadline Exceeded'):
      client.futures.add(1, 2).result(DEADLINE)


def test_a_client_that_does_not_wait_fails_while_the_server_is_away(start):
  process, port = start()
  client = courier.Client(f'localhost:{port}', wait_for_ready=False)
  assert client.add(1, 2) == 3
  pending = client.futures.sleep(DEADLINE)
  process.kill()
  for call in (lambda: pending.result(DEADLINE), lambda: client.add(1, 2)):
    with pytest.raises(courier.StatusNotOk) as caught:
      call()
    assert str(caught.value.code) == 'StatusCode.UNAVAILABLE'
  never = courier.Client(f'localhost:{unused_port()}', wait_for_ready=False)
  with pytest.raises(courier.StatusNotOk, match='failed to connect to all addresses'):
    never.add(1, 2)


@pytest.mark.parametrize('address', ['name', 'name:', ':123', 'name:99999'])
def test_an_address_without_a_host_or_a_port_is_an_error(address):
  client = courier.Client(address)
  with pytest.raises(courier.StatusNotOk, match=f"'{address}' is no address of a server"):
    client.add(1, 2)


@pytest.mark.parametrize('host', ['localhost', '127.0.0.1', '[::1]', socket.gethostname()])
def test_a_server_is_reached_by_every_name_of_its_machine(serve, host):
  if host == '[::1]' and not socket.has_dualstack_ipv6():
    pytest.skip('no IPv6')
  server = serve(add=lambda a, b: a + b)
  assert courier.Client(f'{host}:{server.port}', call_timeout=DEADLINE).add(1, 2) == 3


def _refuse(thread):
  """Starts no thread, as where a container is at its limit."""
  raise RuntimeError("can't start new thread")


def test_a_server_without_further_threads_serves_with_those_that_it_has(serve, monkeypatch):
  go = threading.Event()
  server = serve(add=lambda a, b: a + b, wait=lambda: go.wait(DEADLINE))
  client = courier.Client(server.address, call_timeout=DEADLINE)
  assert client.add(1, 2) == 3  # One thread runs.

  monkeypatch.setattr(threading.Thread, 'start', _refuse)
  pending = [client.futures.wait(), client.futures.add(2, 2), client.futures.add(3, 3)]
  assert not pending[1].done()
  go.set()
  assert [each.result(DEADLINE) for each in pending] == [True, 4, 6]


def _open_no_more():
  raise OSError(errno.EMFILE, 'Too many open files')


@pytest.mark.parametrize(
  ('owner', 'name', 'refuse', 'why'),
  [
    (threading.Thread, 'start', _refuse, "can't start new thread"),
    (socket, 'socketpair', _open_no_more, 'Too many open files'),
  ],
)
def test_a_call_without_a_thread_or_a_file_fails_and_may_be_repeated(
  serve, monkeypatch, owner, name, refuse, why
):
  server = serve(add=lambda a, b: a + b)
  client = courier.Client(server.address, call_timeout=DEADLINE)

  with monkeypatch.context() as patch:
    patch.setattr(owner, name, refuse)
    with pytest.raises(courier.StatusNotOk, match=why) as failed:
      client.futures.add(1, 2).result(DEADLINE)
  assert 'UNAVAILABLE' in str(failed.value.code)
  assert client.add(1, 2) == 3


def test_a_unix_socket_of_another_user_is_not_used(serve, monkeypatch):
  server = serve(add=lambda a, b: a + b)
  monkeypatch.setattr(os, 'geteuid', lambda: 12345)  # Both sides refuse the other one.
  assert courier.Client(server.address, call_timeout=DEADLINE).add(1, 2) == 3


@pytest.mark.parametrize(
  'sent',
  [
    b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n',
    b'courier\x01' + bytes(100),  # Another version.
    b'courier\x02' + b'\xff' * 100,  # No such message.
    b'courier\x02\x01' + bytes(15) + b'\xff' * 8,  # No such memory.
  ],
)
def test_a_stranger_is_disconnected_and_nothing_else_happens(serve, sent):
  server = serve(add=lambda a, b: a + b)
  client = courier.Client(server.address, call_timeout=DEADLINE)
  assert client.add(1, 2) == 3
  with socket.create_connection(('localhost', server.port), DEADLINE) as stranger:
    stranger.sendall(sent)
    with contextlib.suppress(ConnectionResetError):
      while stranger.recv(100):
        pass
  assert client.add(1, 2) == 3


def test_clients_that_arrive_together_are_all_served_however_long_each_takes(serve, monkeypatch):
  arrived, seconds = threading.Event(), [0.0]
  receive = wire.Connection.receive

  def slow(connection):
    assert arrived.wait(DEADLINE)
    seconds[0] += 1.0
    return receive(connection)

  monkeypatch.setattr(py_server, 'time', types.SimpleNamespace(monotonic=lambda: seconds[0]))
  monkeypatch.setattr(wire.Connection, 'receive', slow)
  server = serve()
  with contextlib.ExitStack() as open_sockets:
    clients = []
    for _ in range(100):
      client = socket.create_connection(('localhost', server.port), DEADLINE)
      clients.append(open_sockets.enter_context(client))
      client.sendall(hostile.PREAMBLE + hostile.message(hostile.CALL, 1, b'nothing', b''))
    arrived.set()
    for client in clients:
      with client.makefile('rb') as received:
        assert received.read(len(hostile.PREAMBLE) + 1)[-1:] == bytes([hostile.ERROR])


@pytest.mark.parametrize('sent', [b'', b'cour'])
def test_a_connection_without_a_preamble_ends(serve, sent, monkeypatch):
  monkeypatch.setattr(py_server, '_PREAMBLE_SECONDS', 0.1)
  server = serve()
  with socket.create_connection(('localhost', server.port), DEADLINE) as stranger:
    stranger.sendall(sent)
    while stranger.recv(100):
      pass


def test_a_large_size_costs_no_memory_until_it_is_filled(serve):
  server = serve(add=lambda a, b: a + b)
  with socket.create_connection(('localhost', server.port), DEADLINE) as stranger:
    stranger.sendall(b'courier\x02\x01' + bytes(15) + (1 << 40).to_bytes(8, 'little') + b'rest')
    client = courier.Client(server.address, call_timeout=DEADLINE)
    assert client.add(1, 2) == 3


def test_1000_clients_call_one_server(start):
  _, port = start()
  code = f"""
import resource
import courier
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
clients = [courier.Client('localhost:{port}', call_timeout=600) for _ in range(1000)]
for _ in range(3):
  replies = [client.futures.add(i, 1) for i, client in enumerate(clients)]
  assert [reply.result() for reply in replies] == [*range(1, 1001)]
print('replied')
"""
  assert run_python('-c', code) == 'replied\n'


# In processes without JAX, whose threads a fork would leave behind.
_FORK = """
import os
import courier

def in_child(function):
  reader, writer = os.pipe()
  pid = os.fork()
  if pid == 0:
    try:
      os.write(writer, repr(function()).encode())
    finally:
      os._exit(0)
  os.close(writer)
  with open(reader) as file:
    result = file.read()
  os.waitpid(pid, 0)
  return result
"""


@pytest.mark.parametrize('transport', ['unix', 'tls'])
def test_a_forked_child_has_a_connection_of_its_own(start, request, transport):
  here = 'sockets._is_here'
  if transport == 'tls':
    request.getfixturevalue('over_tls')
    here = 'lambda *address: False'
  _, port = start()
  code = f"""{_FORK}
from courier import sockets
sockets._is_here = {here}
client = courier.Client('localhost:{port}', call_timeout={DEADLINE})
print(client.add(1, 2))
pending = client.futures.sleep(1)
print(in_child(lambda: [client.add(i, 1) for i in range(3)]))
print(client.add(2, 2), pending.result())
"""
  assert run_python('-c', code).splitlines() == ['3', '[1, 2, 3]', '4 None']


def test_a_forked_child_does_not_keep_the_port_of_its_parent():
  code = f"""{_FORK}
def serve(port, value):
  server = courier.Server(port=port)
  server.Bind('value', lambda: value)
  server.Start()
  return server

server = serve(None, 'first')
client = courier.Client(server.address, call_timeout={DEADLINE})
print(client.value())
reader, writer = os.pipe()
ready, begun = os.pipe()
pid = os.fork()
if pid == 0:
  os.close(writer)
  os.write(begun, b'1')
  os.read(reader, 1)
  os._exit(0)
os.read(ready, 1)
server.Stop()
pending = client.futures.value()
successor = serve(server.port, 'second')
print(pending.result())
os.close(writer)
os.waitpid(pid, 0)
"""
  assert run_python('-c', code).splitlines() == ['first', 'second']


def test_an_interpreter_ends_while_calls_are_under_way_and_a_server_runs(start):
  _, port = start()
  code = f"""
import threading
import courier
server = courier.Server()
server.Bind('wait', threading.Event().wait)
server.Start()
away = courier.Client('localhost:{unused_port()}')
pending = [courier.Client(server.address).futures.wait(), away.futures.add(1, 2)]
print(courier.Client('localhost:{port}').add(1, 2))
"""
  assert run_python('-c', code) == '3\n'


def test_a_signal_is_handled_while_the_main_thread_waits_in_a_call(start):
  _, port = start()

  def interrupt(*_):
    raise InterruptedError('handled')

  before = signal.signal(signal.SIGTERM, interrupt)
  try:
    client = courier.Client(f'localhost:{port}')
    assert client.add(1, 2) == 3
    main = threading.get_ident()
    timer = threading.Timer(0.2, lambda: signal.pthread_kill(main, signal.SIGTERM))
    with pytest.raises(InterruptedError, match='handled'):
      timer.start()
      client.sleep(DEADLINE)
    assert client.add(1, 2) == 3
  finally:
    timer.join()
    signal.signal(signal.SIGTERM, before)


def test_a_client_that_is_freed_ends_its_thread_and_its_connection(serve):
  server = serve(add=lambda a, b: a + b)
  known = set(threading.enumerate())
  client = courier.Client(server.address, call_timeout=DEADLINE)
  assert client.add(1, 2) == 3
  (thread,) = [thread for thread in set(threading.enumerate()) - known if thread.name == 'courier']
  del client
  thread.join(DEADLINE)
  assert not thread.is_alive()


def test_nothing_runs_before_the_first_call_and_importing_is_cheap():
  code = """
import sys, threading
import courier
client, server = courier.Client('localhost:1'), courier.Server()
assert threading.active_count() == 1
print(*sys.modules)
"""
  loaded = set(run_python('-c', code).split())
  assert not loaded & {'numpy', 'jax', 'ssl', 'asyncio', 'absl', 'launchpad', 'tensorflow', 'grpc'}


def test_a_server_without_file_descriptors_serves_those_who_are_connected():
  code = """
import resource, socket, time
import courier
server = courier.Server()
server.Bind('add', lambda a, b: a + b)
server.Start()
client = courier.Client(server.address, call_timeout=600)
assert client.add(1, 2) == 3
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
strangers = []
try:
  while True:
    strangers.append(socket.create_connection(('localhost', server.port)))
except OSError:
  pass
assert client.add(1, 2) == 3
for stranger in strangers:
  stranger.close()
del strangers
assert courier.Client(server.address, call_timeout=600).add(2, 2) == 4
print('served')
"""
  assert run_python('-c', code) == 'served\n'


def test_no_proxy_is_asked(serve, monkeypatch):
  for name in ('http_proxy', 'https_proxy', 'grpc_proxy', 'all_proxy'):
    monkeypatch.setenv(name, f'http://localhost:{unused_port()}')
  assert courier.Client(serve(add=lambda a, b: a + b).address, call_timeout=DEADLINE).add(1, 2) == 3
