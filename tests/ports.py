"""Ports for the servers that a test starts."""

from launchers import binding

_given: set[int] = set()


def unused_port() -> int:
  """Returns a free port that this process has not had before.

  gRPC shares connections by address within a process. While a client of a closed server lives, the first
  call to another server on the same port may fail with "Socket closed".
  """
  (port,) = binding.free_ports(1)
  while port in _given:
    (port,) = binding.free_ports(1)
  _given.add(port)
  return port
