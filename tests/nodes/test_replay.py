"""A replay server: its port, its death, its hang, its end."""

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from nodes import replay
from nodes.runtime import activity, lifecycle
from nodes.unrolls.reader import UnrollReader
from nodes.unrolls.writer import UnrollWriter
from tests.nodes.numbered import COLUMNS, numbered_unrolls
from tests.nodes.prioritized import prioritized, write
from tests.ports import unused_port
from tests.waiting import DEADLINE, wait_until


@pytest.fixture
def dying():
  """The address of a server that dies in the middle of each call, and an event for the first death."""
  died = threading.Event()
  with socket.create_server(('127.0.0.1', 0)) as listener:

    def serve():
      with contextlib.suppress(OSError):  # Closed.
        while True:
          connection, _ = listener.accept()
          with connection:
            connection.sendall(
              bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            )  # HTTP/2 settings, so that it asks.
            while connection.recv(4096).find(b'/deepmind.reverb') < 0:
              pass
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
          died.set()

    threading.Thread(target=serve, daemon=True).start()
    yield f'127.0.0.1:{listener.getsockname()[1]}', died
    listener.shutdown(socket.SHUT_RDWR)


def test_a_call_to_a_server_that_dies_is_retried(dying):
  address, died = dying
  reader = UnrollReader([address], COLUMNS, batch_size=2, max_in_flight=1)
  assert np.isnan(reader.measure()['replay_size'])
  assert 'does not answer' in reader.explain_wait()
  keys, priorities = np.array([1, 2], np.uint64), np.ones(2)
  for _ in range(2):
    died.clear()
    assert reader.update_priorities(keys, priorities)
    assert died.wait(60)


def test_an_occupied_port_is_rejected(tmp_path):
  with socket.socket(socket.AF_INET6) as other:
    other.bind(('', 0))
    other.listen()
    with pytest.raises(OSError, match='in use'):
      port = other.getsockname()[1]
      replay.ReplayServer(prioritized(), None, 'replay/0', str(tmp_path), 0.0, port)


_SERVER = """
import sys
from nodes import replay
from nodes.unrolls import tables
table = {
  'queue': tables.queue_table(4),
  'prioritized': tables.prioritized_table(1000, 1, 1e6, 1e9, 0.9),
}[sys.argv[1]]
server = replay.ReplayServer(table, None, 'replay/0', sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
print('up', flush=True)
server.run()
"""


@pytest.fixture
def serve_in_process(tmp_path):
  """Starts a replay server in a process of its own, at the same address each time."""
  port = unused_port()
  servers = []

  def start(kind, checkpoint_period):
    arguments = [kind, str(tmp_path / 'replay'), str(checkpoint_period), str(port)]
    server = subprocess.Popen(
      [sys.executable, '-c', _SERVER, *arguments],
      stdout=subprocess.PIPE,
      text=True,
      env={**os.environ, lifecycle.RESTART_COUNT_VARIABLE: str(len(servers))},
    )
    servers.append(server)
    assert server.stdout.readline() == 'up\n'
    return server, f'localhost:{port}'

  yield start
  for server in servers:
    server.kill()


@pytest.mark.slow
def test_a_killed_queue_loses_its_content_and_duplicates_nothing(serve_in_process):
  server, address = serve_in_process('queue', 0)
  produced = []
  writer = UnrollWriter([address], COLUMNS, produced=produced.extend)
  writer.start()
  reader = UnrollReader([address], COLUMNS, batch_size=2, max_in_flight=2)
  stop = threading.Event()

  def feed():
    for number in itertools.count():
      released = threading.Event()
      writer.put(numbered_unrolls(number % 100, 1), released.set)
      while not released.wait(0.1):
        if stop.is_set():
          return

  threading.Thread(target=feed, daemon=True).start()
  batches = iter(reader)
  trained = [i for _ in range(10) for i in next(batches).unroll_ids]
  server.kill()
  server.wait()
  assert np.isnan(reader.measure()['replay_size'])
  assert 'does not answer' in reader.explain_wait()
  serve_in_process('queue', 0)
  before = len(trained)
  trained += [i for _ in range(10) for i in next(batches).unroll_ids]
  stop.set()
  writer.check()
  writer.close()
  assert len(set(trained)) == len(trained), 'an unroll was delivered twice'
  assert set(trained) <= set(produced)
  # The queue's four, the reader's two batches, and what was on its way.
  lost = produced.index(trained[before]) - produced.index(trained[before - 1]) - 1
  assert lost <= 4 + 2 * 2 + 2


@pytest.mark.slow
def test_a_killed_server_restarts_with_the_items_of_its_last_checkpoint(serve_in_process, tmp_path):
  server, address = serve_in_process('prioritized', 0.5)
  write([address], 6, np.arange(1.0, 7.0)).close()
  before = set((tmp_path / 'replay').glob('*/DONE'))
  done = set()

  def written():
    done.update(set((tmp_path / 'replay').glob('*/DONE')) - before)
    return len(done)

  wait_until(lambda: written() >= 2)  # The second began after the writing had ended.
  server.kill()
  server.wait()
  serve_in_process('prioritized', 0)
  reader = UnrollReader([address], COLUMNS, batch_size=500, max_in_flight=500)
  assert reader.measure()['replay_size'] == 6
  assert set(next(iter(reader)).unrolls.environment_id) == set(range(6))


class _Monitor:
  """Answers whether training has finished, and counts how often it was asked."""

  def __init__(self, training_finished):
    self.asked, self._training_finished = 0, training_finished

  def finished(self):
    self.asked += 1
    return self._training_finished


def _server(monitor, directory):
  """Returns a server that writes checkpoints at the end only."""
  return replay.ReplayServer(prioritized(), monitor, 'replay/0', str(directory), 1e9, unused_port())


@pytest.mark.slow
def test_a_server_that_is_stopped_before_or_after_the_end_writes_a_checkpoint(
  tmp_path, connect, stop
):
  running = []
  for finished in (False, True):
    monitor, directory = _Monitor(finished), tmp_path / str(finished)
    server = _server(connect(monitor), directory)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    running.append((monitor, directory, thread))
  # The second question is asked once the first is answered.
  wait_until(lambda: all(monitor.asked >= 2 for monitor, _, _ in running))
  stop.set()
  for _, directory, thread in running:
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert list(directory.glob('*/DONE'))


@pytest.mark.slow
def test_a_server_that_is_stopped_amid_its_last_checkpoint_completes_it(
  tmp_path, connect, monkeypatch, stop
):
  begun, proceed = threading.Event(), threading.Event()
  server = _server(connect(_Monitor(training_finished=True)), tmp_path)
  write = server.write_checkpoint

  def write_slowly():
    begun.set()
    proceed.wait(DEADLINE)
    write()

  monkeypatch.setattr(server, 'write_checkpoint', write_slowly)
  thread = threading.Thread(target=server.run, daemon=True)
  thread.start()
  assert begun.wait(DEADLINE)
  stop.set()
  thread.join(1)
  assert thread.is_alive(), 'it has closed Reverb'
  proceed.set()
  thread.join(DEADLINE)
  assert list(tmp_path.glob('*/DONE'))


@pytest.mark.slow
def test_a_server_whose_last_checkpoint_failed_writes_it_when_it_is_stopped(
  tmp_path, connect, monkeypatch, stop
):
  server = _server(connect(_Monitor(training_finished=True)), tmp_path)
  room = server._checkpoints.make_room

  def full():
    monkeypatch.setattr(server._checkpoints, 'make_room', room)
    raise OSError('no room')

  monkeypatch.setattr(server._checkpoints, 'make_room', full)
  thread = threading.Thread(target=server.run, daemon=True)
  thread.start()
  wait_until(lambda: server.measure(1.0) == {'checkpoint_failures': 1.0})
  assert not list(tmp_path.glob('*/DONE'))
  stop.set()
  thread.join(DEADLINE)
  assert list(tmp_path.glob('*/DONE'))


_OBSERVED_SERVER = """
import sys, threading, time
from nodes import replay
from nodes.runtime import activity
from nodes.unrolls import tables
replay._ASK_SECONDS, replay._REPLY_SECONDS = 0.1, 1
server = replay.ReplayServer(tables.queue_table(4), None, 'replay/0', sys.argv[1], 0.0, int(sys.argv[2]))
due = threading.Event()
server._schedule.due = lambda writing: due.is_set()
threading.Thread(target=server.run, daemon=True).start()
for line in sys.stdin:
  if line == 'reverb\\n':
    print(server._child.pid, flush=True)
  elif line == 'seconds\\n':
    print(time.monotonic() - activity.latest().marked, flush=True)
  else:
    if line == 'checkpoint\\n':
      due.set()
    print(activity.latest().activity.name, flush=True)
"""


@pytest.mark.slow
def test_a_reverb_that_does_not_reply_is_no_progress_until_it_replies_again(tmp_path):
  arguments = [str(tmp_path / 'replay'), str(unused_port())]
  with subprocess.Popen(
    [sys.executable, '-c', _OBSERVED_SERVER, *arguments],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as server:
    try:

      def ask(question):
        server.stdin.write(f'{question}\n')
        server.stdin.flush()
        return server.stdout.readline().strip()

      wait_until(lambda: ask('activity') == activity.SERVING.name)
      reverb = int(ask('reverb'))
      os.kill(reverb, signal.SIGSTOP)
      wait_until(lambda: ask('activity') == activity.UNANSWERED.name)
      ask('checkpoint')  # Due, but it would block for as long as Reverb does.
      wait_until(lambda: float(ask('seconds')) > 1)
      assert ask('activity') == activity.UNANSWERED.name
      os.kill(reverb, signal.SIGCONT)
      wait_until(lambda: ask('activity') == activity.SERVING.name)
    finally:
      server.kill()
