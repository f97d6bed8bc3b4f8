"""What a host of a Slurm job says before nodes start there: can it see the others, which ports has it.

`python -m launchers.slurm_probe FIRST_PORT COUNT HOST...` prints one JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys

from launchers import process

# Below the range from which systems give ports to outgoing connections, so that a node which comes
# back finds its port free.
_LOWEST, _HIGHEST = 10_000, 32_000


def first_port(job_id: int) -> int:
  """Returns where to look for ports first: jobs that share a host look in different places."""
  return _LOWEST + job_id * 97 % (_HIGHEST - _LOWEST)


def free_ports(first: int, count: int) -> list[int]:
  """Returns the next ports from `first` on that nothing on this host has.

  Raises:
    OSError: if there are not that many.
  """
  ports: list[int] = []
  for offset in range(_HIGHEST - _LOWEST):
    if len(ports) == count:
      return ports
    port = _LOWEST + (first - _LOWEST + offset) % (_HIGHEST - _LOWEST)
    with process.unbound_socket() as s, contextlib.suppress(OSError):
      s.bind(('', port))
      ports.append(port)
  raise OSError(f'fewer than {count} ports are free')


def _problem(hosts: list[str]) -> str:
  for host in hosts:
    try:
      socket.getaddrinfo(host, None)
    except OSError as error:
      return f'does not know the name {host} ({error.strerror})'
  return ''


def main(argv: list[str]) -> None:
  """Prints the object: host, ports, problem."""
  report = {
    'host': os.environ['SLURMD_NODENAME'],
    'ports': free_ports(int(argv[1]), int(argv[2])),
    'problem': _problem(argv[3:]),
  }
  print(json.dumps(report))


if __name__ == '__main__':
  main(sys.argv)
