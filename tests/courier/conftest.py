"""Servers for the tests of `courier`."""

import pytest

import courier

DEADLINE = 60


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
