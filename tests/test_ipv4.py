"""Sockets on a kernel that has no IPv6."""

import errno
import socket

import pytest

from launchers import binding
from launchers.slurm import probe
from nodes.inference.client import ServerAddress
from nodes.inference.socket_server import SocketServer
from nodes.runtime import listening


class _Socket(socket.socket):
  def __init__(self, family=-1, *args, **options):
    if family == socket.AF_INET6:
      raise OSError(errno.EAFNOSUPPORT, 'Address family not supported by protocol')
    super().__init__(family, *args, **options)


@pytest.fixture(autouse=True)
def _ipv4_only(monkeypatch):
  monkeypatch.setattr(socket, 'socket', _Socket)


def test_launchers_find_ports():
  held = listening.bind_ports(3)
  ports = [s.getsockname()[1] for s in held]
  assert len(set(ports)) == 3
  for s in held:
    s.close()
  first = probe.first_port(5)
  found = probe.free_ports(first, 3)
  with listening.listen(found[0]):
    assert found[0] not in probe.free_ports(first, 3)


def test_servers_listen_and_an_occupied_port_is_rejected():
  (port,) = binding.free_ports(1)
  listening.listen(port).close()
  inbox = SocketServer(port)
  ServerAddress(f'127.0.0.1:{port}').connect().close()
  with pytest.raises(OSError, match='in use'):
    listening.listen(port)
  inbox.close()
