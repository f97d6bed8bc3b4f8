"""Servers for the tests of `courier`."""

import subprocess
import sys

import pytest

import courier
from courier import sockets
from tests import certificates
from tests.waiting import DEADLINE


@pytest.fixture
def certificate(tmp_path):
  """Returns the path of a run's certificate."""
  return certificates.write(tmp_path / 'run.pem')


@pytest.fixture
def over_tls(certificate, monkeypatch):
  """Has servers and clients use TLS, and clients of this process TCP."""
  monkeypatch.setenv('COURIER_TLS', certificate)
  monkeypatch.setattr(sockets, '_is_here', lambda *address: False)


@pytest.fixture
def start():
  """Starts `server_process`, at a port or at a free one; returns the process and the port."""
  processes = []

  def start(port=0):
    process = subprocess.Popen(
      [sys.executable, '-m', 'tests.courier.server_process', str(port)],
      stdout=subprocess.PIPE,
      text=True,
    )
    processes.append(process)
    return process, int(process.stdout.readline())

  yield start
  for process in processes:
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def serve():
  """Serves functions by their names; returns the started server."""
  servers = []

  def start(port=None, thread_pool_size=16, **functions):
    server = courier.Server(port=port, thread_pool_size=thread_pool_size)
    for name, function in functions.items():
      server.Bind(name, function)
    server.Start()
    servers.append(server)
    return server

  yield start
  for server in servers:
    server.Stop()


@pytest.fixture
def connect(serve):
  """Serves functions by their names; returns a client."""

  def start(thread_pool_size=16, **functions):
    server = serve(thread_pool_size=thread_pool_size, **functions)
    return courier.Client(server.address, call_timeout=DEADLINE)

  return start
