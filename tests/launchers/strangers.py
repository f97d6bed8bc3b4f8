"""Who can connect to the servers of a process, from outside of its program, and what they say."""

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import socket
import ssl

import psutil
import pytest

from courier import wire
from launchers import certificate
from nodes.runtime import lifecycle, network_namespace
from tests.waiting import DEADLINE

_CLONE_NEWNET = 0x40000000
_ALERT = b'\x15\x03'  # Of TLS, which says no more than why a connection ends.


def obstacle():
  """Returns what keeps processes on this system from having a network of their own; '' if nothing."""
  return network_namespace.refusal()


def certificate_of(launcher):
  """Returns the path of the certificate that a launcher's nodes have, for its user outside of the run.

  Args:
    launcher: the launcher's process id.
  """
  for file in pathlib.Path(f'/proc/{launcher}/fd').iterdir():
    if os.readlink(file).startswith('/memfd:launchpod'):
      return str(file)
  raise AssertionError('the launcher has no certificate')


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
  """Returns {inode: port} of the TCP servers of a process and its children in its network."""
  inodes = set()
  for process in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
    with contextlib.suppress(FileNotFoundError):  # A child may end.
      for name in os.listdir(f'/proc/{process}/fd'):
        with contextlib.suppress(FileNotFoundError):
          kind, _, inode = os.readlink(f'/proc/{process}/fd/{name}').partition(':')
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


class _Written:
  """Creates a file when it is unpickled."""

  def __init__(self, path):
    self._path = path

  def __reduce__(self):
    return open, (self._path, 'w')


def answers(pid, own, written):
  """Returns what the TCP servers of a process answer, {port: {attempt: answer}}.

  The attempts are those of a stranger without TLS, 'plain', without a certificate, 'none', and with
  that of another run, 'foreign'; and that of a node, 'own', whose answer is 'accepted' or 'refused'.

  Args:
    pid: the process, perhaps in another network, which only root can enter.
    own: path of the certificate of its run.
    written: path of a file that exists if a server has unpickled what a stranger sent.
  """
  contexts = {'none': _context(None), 'own': _context(own)}
  foreign = certificate.in_memory(certificate.new())
  contexts['foreign'] = _context(certificate.variable(foreign)[certificate.VARIABLE])
  call = wire.message(wire.CALL, 1, 'hello', ((_Written(written),), {}), wire.PICKLED)
  said = b'courier\x02' + b''.join(map(bytes, call.parts()))

  def attempt(port, name):
    with socket.create_connection(('127.0.0.1', port), DEADLINE) as stream:
      try:
        if name == 'own':
          return _answer_to_a_node(stream, contexts[name])
        with contexts[name].wrap_socket(stream) if name in contexts else stream as stream:
          stream.sendall(said)
          heard = stream.recv(4096)
          return '' if heard.startswith(_ALERT) else heard.decode(errors='replace')
      except TimeoutError:
        return 'silence'
      except OSError:
        return ''

  def enter():
    with open(f'/proc/{pid}/ns/net') as namespace:
      if os.readlink('/proc/self/ns/net') != os.readlink(namespace.name):
        assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) == 0

  found = sorted(set(ports(pid).values()))
  names = ('plain', 'none', 'foreign', 'own')
  with concurrent.futures.ThreadPoolExecutor(8, initializer=enter) as pool:
    tried = {port: {name: pool.submit(attempt, port, name) for name in names} for port in found}
    return {port: {n: f.result() for n, f in by_name.items()} for port, by_name in tried.items()}


def look(directory, left_out):
  """Returns what a stranger gets of the run of this process, which is one of its nodes.

  Args:
    directory: the run directory.
    left_out: names of programs whose servers are not tried.

  Returns:
    'answers': those of all servers of the run on this machine, as in `answers`; 'unpickled': whether
    a server has unpickled anything; 'shown': the processes whose arguments show the key, and the files
    with it that others can read.
  """
  own = os.environ[certificate.VARIABLE]
  with open(own, 'rb') as file:
    key = file.read().splitlines()[1]
  of_this_run = f'{lifecycle.RUN_VARIABLE}={lifecycle.run_token()}'.encode()
  written, found, shown = os.path.join(directory, 'unpickled'), [], []
  for process in psutil.process_iter():
    with contextlib.suppress(OSError, psutil.Error):
      # A fork of a server has the variables of the server there.
      variables = _read(f'/proc/{process.pid}/environ').split(b'\0')
      payload = os.path.join(directory, 'nodes').encode()
      if of_this_run in variables or payload in _read(f'/proc/{process.pid}/cmdline'):
        if process.name() not in left_out:
          found += answers(process.pid, own, written).values()
        shown += [process.name()] * (key in _read(f'/proc/{process.pid}/cmdline'))
  for parent, _, names in os.walk(directory):
    for path in [own, *(os.path.join(parent, name) for name in names)]:
      with contextlib.suppress(OSError):  # Another node may remove it.
        shown += [path] * bool(os.stat(path).st_mode & 0o077 and key in _read(path))
  return {'answers': found, 'unpickled': os.path.exists(written), 'shown': shown}


def _read(path):
  with open(path, 'rb') as file:
    return file.read()


# What `answers` returns of a server that serves nobody but its run.
CLOSED = {'plain': '', 'none': '', 'foreign': '', 'own': 'accepted'}


def _answer_to_a_node(stream, context):
  """Returns whether a server accepts the certificate of a context; it says so by the end alone."""
  try:
    stream = context.wrap_socket(stream)
  except ssl.SSLError as error:
    return f'refused: {error.reason}'
  with stream:
    try:
      stream.sendall(bytes(4096))  # No message of any server, so that it ends the connection.
      stream.recv(4096)
    except ssl.SSLError as error:
      if 'ALERT' in str(error.reason):
        return f'refused: {error.reason}'
    except ConnectionError:
      pass
  return 'accepted'


def _context(path):
  """Returns the TLS of a client that trusts any server, with the certificate of a file or without."""
  context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
  if path:
    context.load_cert_chain(path)
  return context
