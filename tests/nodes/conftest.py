"""Servers that tests of nodes talk to."""

import courier
import pytest

from launchers import core


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


@pytest.fixture
def serve(tmp_path):
  """Starts replay servers; returns their addresses."""
  from nodes import replay  # Seconds, which most tests do not need to wait.

  servers = []

  def start(tables, directory='replay'):
    port = core.free_ports(1)[0]
    servers.append(
      replay.ReplayServer(tables, None, 'replay/0', str(tmp_path / directory), 0.0, port)
    )
    return f'localhost:{port}'

  yield start
  for server in servers:
    server.close()
