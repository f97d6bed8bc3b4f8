"""Servers that tests of nodes talk to."""

import courier
import pytest


@pytest.fixture
def connect():
  """Serves an object; returns a client of it."""
  servers = []

  def serve(instance, **client_kwargs):
    server = courier.Server()
    for name in dir(instance):
      if not name.startswith('_') and callable(getattr(instance, name)) and name != 'hold':
        server.Bind(name, getattr(instance, name))
    server.Start()
    servers.append(server)
    return courier.Client(server.address, **client_kwargs)

  yield serve
  for server in servers:
    server.Stop()
