"""Writers and samplers while servers are full, away, silent or restarted."""

import contextlib
import itertools
import socket
import threading

import numpy as np
import psutil
import pytest

from courier import sockets, tls
from launchers import certificate
from nodes import replay
from nodes.replay_server import child
from nodes.runtime import replay_socket
from nodes.unrolls.replay_client import (
  ReplayAwayError,
  ReplayClient,
  ReplayError,
  Writer,
  connecting,
  flush,
)
from nodes.unrolls.table_names import ORIGINALS, UNROLLS
from nodes.unrolls.tables import queue_table, uniform_table
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until


def row(number, size=8):
  return np.full(size, number, np.uint8)


def numbers(samples):
  return [int(sample.columns[0][0]) for sample in samples]


@pytest.fixture
def restart(tmp_path):
  """Starts a server with a queue of some size in place of the one before, which is killed.

  Returns its address.
  """
  port, servers = unused_port(), []

  def start(size):
    stop()
    server = replay.ReplayServer(queue_table(size), None, 'replay/0', str(tmp_path), 0.0, port)
    servers.append(server)
    return f'localhost:{port}'

  def stop():
    for process in psutil.Process().children():
      if 'nodes.replay_server.server' in process.cmdline():
        process.kill()  # One that ends by itself confirms what it drops.
        process.wait(DEADLINE)
    while servers:
      servers.pop().close()

  yield start
  stop()


def test_what_a_server_had_not_confirmed_is_sent_to_the_next_incarnation(restart):
  address = restart(4)
  writer = Writer(address)
  for number in range(10):
    writer.insert([row(number)], {UNROLLS: 1.0})
  assert not writer.flush(0.5)  # The queue is full.
  restart(100)
  assert writer.flush(DEADLINE)
  sampler = ReplayClient(address).sampler(UNROLLS, 6)
  assert numbers(itertools.islice(sampler, 6)) == list(range(4, 10))
  assert ReplayClient(address).server_info()[UNROLLS].current_size == 0
  sampler.close()
  writer.close()


def test_a_writer_and_a_sampler_wait_for_a_server_that_starts_later(tmp_path):
  port = unused_port()
  address = f'localhost:{port}'
  writer = Writer(address)
  writer.insert([row(3)], {UNROLLS: 1.0})
  assert not writer.flush(0.1)
  with pytest.raises(ReplayAwayError, match='cannot be connected to'):
    ReplayClient(address).server_info()
  sampler = ReplayClient(address).sampler(UNROLLS, 1)
  server = replay.ReplayServer(queue_table(4), None, 'replay/0', str(tmp_path), 0.0, port)
  assert writer.flush(DEADLINE)
  assert numbers([next(sampler)]) == [3]
  sampler.close()
  writer.close()
  server.close()


def test_a_sampler_goes_on_with_the_next_incarnation(restart):
  address = restart(100)
  sampler, writer = ReplayClient(address).sampler(UNROLLS, 4), Writer(address)
  for number in range(3):
    writer.insert([row(number)], {UNROLLS: 1.0})
  assert writer.flush(DEADLINE)
  assert numbers(itertools.islice(sampler, 3)) == [0, 1, 2]
  restart(100)
  for number in range(3, 20):
    writer.insert([row(number)], {UNROLLS: 1.0})
  assert writer.flush(DEADLINE)
  assert numbers(itertools.islice(sampler, 17)) == list(range(3, 20))
  sampler.close()
  writer.close()


@pytest.mark.parametrize('in_flight', [1, 5])
def test_no_more_samples_are_taken_than_may_be_in_flight(serve, in_flight):
  address = serve(queue_table(100))
  writer, client = Writer(address), ReplayClient(address)
  for number in range(60):
    writer.insert([row(number)], {UNROLLS: 1.0})
  assert writer.flush(DEADLINE)
  sampler = client.sampler(UNROLLS, in_flight)
  for number, sample in enumerate(itertools.islice(sampler, 40)):
    assert numbers([sample]) == [number]
    assert client.server_info()[UNROLLS].current_size >= 60 - number - 1 - in_flight
  wait_until(lambda: client.server_info()[UNROLLS].current_size < 20 or in_flight == 1)
  sampler.close()
  writer.close()


def test_items_of_two_tables_on_two_servers_share_their_rows(serve):
  addresses = [
    serve([*queue_table(100), *uniform_table(100, 1)], directory) for directory in ('a', 'b')
  ]
  writers = [Writer(address) for address in addresses]
  for number in range(20):
    writers[number % 2].insert([row(number, 200_000)], {UNROLLS: 1.0, ORIGINALS: 1.0})
  assert flush(writers, DEADLINE)
  for first, address in enumerate(addresses):
    client = ReplayClient(address)
    assert [info.current_size for info in client.server_info().values()] == [10, 10]
    sampler = client.sampler(UNROLLS, 3)
    assert numbers(itertools.islice(sampler, 10)) == list(range(first, 20, 2))
    sampler.close()
  for writer in writers:
    writer.close()


def test_a_table_that_the_server_does_not_have(serve):
  address = serve(queue_table(4))
  writer, client = Writer(address), ReplayClient(address)
  writer.insert([row(0)], {'absent': 1.0})
  with pytest.raises(ReplayError, match='table absent was not found'):
    writer.flush(DEADLINE)
  sampler = client.sampler('absent', 1)
  for _ in range(2):
    with pytest.raises(ReplayError, match='table absent was not found'):
      next(sampler)
  with pytest.raises(ReplayError, match='table absent was not found'):
    client.mutate_priorities('absent', {1: 1.0})
  sampler.close()
  writer.close()


@pytest.mark.parametrize('priority', [-1.0, float('nan')])
def test_a_priority_that_would_end_the_table_is_refused(priority):
  with pytest.raises(ValueError, match='a priority must be at least 0'):
    Writer('localhost:1').insert([row(0)], {UNROLLS: priority})


@pytest.fixture
def silent():
  """The address of a server that accepts connections and says nothing."""
  with socket.create_server(('127.0.0.1', 0)) as listener:
    yield f'127.0.0.1:{listener.getsockname()[1]}'


def test_a_silent_server_holds_nobody_longer_than_the_timeout(silent):
  with pytest.raises(ReplayAwayError, match='has not replied to ServerInfo in'):
    ReplayClient(silent).server_info(timeout=0.1)
  writer = Writer(silent)
  writer.insert([row(0)], {UNROLLS: 1.0})
  assert not writer.flush(0.1)
  writer.close()
  sampler = ReplayClient(silent).sampler(UNROLLS, 1)
  reader = threading.Thread(target=lambda: list(sampler), daemon=True)
  reader.start()
  sampler.close()
  reader.join(DEADLINE)
  assert not reader.is_alive()


@pytest.fixture
def run_certificate(monkeypatch, tmp_path):
  """Gives this process, and the servers that it starts, the certificate of a run."""
  # By a path of its own: a process keeps what it has read of a path.
  path = tmp_path / 'certificate.pem'
  path.write_bytes(certificate.new())
  monkeypatch.setenv(tls.VARIABLE, str(path))


def test_a_client_on_the_machine_of_the_server_needs_no_tcp(serve, run_certificate, monkeypatch):
  address = serve(queue_table(4))
  monkeypatch.setattr(tls, 'client_context', lambda: None)  # TCP would need it.
  assert list(ReplayClient(address).server_info(timeout=DEADLINE)) == [UNROLLS]


def test_a_client_waits_at_the_unix_socket_of_a_server_that_starts(run_certificate, monkeypatch):
  monkeypatch.setattr(connecting, '_CONNECT_SECONDS', 0.1)
  with contextlib.closing(sockets.bind(0)) as anywhere:
    anywhere.listen()
    port = anywhere.getsockname()[1]
    with contextlib.closing(sockets.listen_unix(replay_socket.unix_name(port))):
      with pytest.raises(ReplayAwayError, match='timed out'):
        connecting.connect(f'localhost:{port}')
      anywhere.setblocking(False)
      with pytest.raises(BlockingIOError):
        anywhere.accept()
    # Once no server has a Unix socket beside the port, the client connects over TCP.
    connecting.connect(f'localhost:{port}').close()


def test_over_tcp_only_processes_with_the_certificate_of_the_run_are_served(
  serve, run_certificate, monkeypatch
):
  def bind(port, listen=child.listen):
    taken.bind(replay_socket.unix_name(port))  # So there is TCP only.
    return listen(port)

  rows = [np.random.default_rng(n).integers(0, 256, 700_000, np.uint8) for n in range(9)]
  monkeypatch.setattr(child, 'listen', bind)
  with socket.socket(socket.AF_UNIX) as taken:
    address = serve(queue_table(100))
    writer = Writer(address)
    for expected in rows:
      writer.insert([expected], {UNROLLS: 1.0})
    assert writer.flush(DEADLINE)
    sampler = ReplayClient(address).sampler(UNROLLS, 3)
    for expected, sample in zip(rows, sampler, strict=False):
      np.testing.assert_array_equal(sample.columns[0], expected)
    sampler.close()
    writer.close()
    monkeypatch.delenv(tls.VARIABLE)
    with pytest.raises(ReplayAwayError):
      ReplayClient(address).server_info(timeout=DEADLINE)
