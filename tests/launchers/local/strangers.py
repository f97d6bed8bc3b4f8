"""Who can connect to the servers of a process, from outside of its program."""

import contextlib
import os
import socket

import psutil
import pytest

from launchers.local import isolation


def obstacle():
  """Returns what keeps processes on this system from having a network of their own; '' if nothing."""
  return isolation._obstacle()


def require_isolation():
  """Skips a test where the system allows no process a network of its own."""
  if reason := obstacle():
    pytest.skip(reason)


def addresses():
  """Returns every address of this machine."""
  families = (socket.AF_INET, socket.AF_INET6)
  cards = psutil.net_if_addrs().values()
  return {'localhost'} | {a.address for card in cards for a in card if a.family in families}


def _listening(pid):
  """Returns {inode: port} of the TCP servers in the network of a process."""
  found = {}
  for file in ('tcp', 'tcp6'):
    with open(f'/proc/{pid}/net/{file}') as f:
      for line in f.readlines()[1:]:
        _, local, _, state, *rest = line.split()
        if state == '0A':
          found[rest[5]] = int(local.rpartition(':')[2], 16)
  return found


def ports(pid):
  """Returns {inode: port} of the TCP servers of a process, in whatever network it is."""
  inodes = set()
  for name in os.listdir(f'/proc/{pid}/fd'):
    with contextlib.suppress(FileNotFoundError):
      kind, _, inode = os.readlink(f'/proc/{pid}/fd/{name}').partition(':')
      if kind == 'socket':
        inodes.add(inode.strip('[]'))
  return {inode: port for inode, port in _listening(pid).items() if inode in inodes}


def reached(servers):
  """Returns the addresses at which this process can connect to one of the servers of `ports`."""
  others = {port for inode, port in _listening('self').items() if inode not in servers}
  found = set()
  for port in set(servers.values()) - others:
    for address in addresses():
      with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=10):
        found.add(address)
  return found
