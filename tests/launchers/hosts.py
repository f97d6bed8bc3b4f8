"""Hosts that are network namespaces of this machine, with hostnames and addresses of their own.

They know each other's names, share the file system, and are on a bridge, with this machine. Needs root.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

PROGRAMS = ('ip', 'unshare', 'setpriv')


def missing():
  """Returns what hosts need and this machine lacks, or an empty string."""
  if os.geteuid() != 0:
    return 'root, to make network namespaces'
  if absent := [program for program in PROGRAMS if shutil.which(program) is None]:
    return ', '.join(absent)
  if subprocess.run(['unshare', '--net', '--uts', '--mount', 'true']).returncode:
    return 'the right to make network namespaces'
  return ''


class Hosts:
  """Hosts, and processes on them, which end with this process.

  Attributes:
    address: the address of this machine on the bridge.
  """

  def __init__(self, directory, names, here):
    """Adds the hosts.

    Args:
      directory: an existing directory.
      names: those of the hosts.
      here: their name for this machine.
    """
    self._directory, self._names = pathlib.Path(directory), names
    self._tag = f'lp{os.getpid()}'
    self._subnet = f'10.77.{os.getpid() % 250}'
    self.address = f'{self._subnet}.1'
    self.daemons = {}
    addresses = ['127.0.0.1 localhost', f'{self.address} {here}']
    addresses += [f'{self.address_of(name)} {name}' for name in names]
    (self._directory / 'hosts').write_text('\n'.join(addresses) + '\n')
    _ip('link', 'add', self._tag, 'type', 'bridge')
    try:
      _ip('addr', 'add', f'{self.address}/24', 'dev', self._tag)
      _ip('link', 'set', self._tag, 'up')
      for name in names:
        self._add(name)
    except BaseException:
      self.close()
      raise

  def address_of(self, host):
    """Returns the address of a host."""
    return f'{self._subnet}.{11 + self._names.index(host)}'

  def here(self, hostname, command):
    """Returns a command that runs another, of a shell, on this machine under a hostname."""
    script = f'hostname {hostname}; mount --bind {self._directory}/hosts /etc/hosts; {command}'
    return ['unshare', '--uts', '--mount', 'sh', '-ec', script]

  def on(self, host, command):
    """Returns a command that runs another, of a shell, on a host."""
    return ['ip', 'netns', 'exec', f'{self._tag}{host}', *self.here(host, command)]

  def start(self, name, command, **options):
    """Starts a daemon; its output goes to `name`.out in the directory."""
    with open(self._directory / f'{name}.out', 'ab') as out:
      self.daemons[name] = subprocess.Popen(
        ['setpriv', '--pdeathsig', 'KILL', *command],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
        **options,
      )

  def processes(self, host, command=''):
    """Returns the ids of the processes on a host whose command lines begin like that."""
    pids = subprocess.run(
      ['ip', 'netns', 'pids', f'{self._tag}{host}'], capture_output=True, text=True, check=True
    ).stdout.split()
    return [int(pid) for pid in pids if _command_line(pid).startswith(command)]

  def kill_all(self, host):
    """Kills all that runs on a host."""
    for pid in self.processes(host):
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)

  def close(self):
    """Stops every process and removes the namespaces and the bridge."""
    for host in self._names:
      with contextlib.suppress(subprocess.CalledProcessError):
        self.kill_all(host)
    for daemon in self.daemons.values():
      daemon.kill()
      daemon.wait()
    for host in self._names:
      # The link first: a namespace takes its own along only some time after this command has ended, and
      # the next hosts of this process have links of the same names.
      for kind in ('link', 'netns'):
        subprocess.run(['ip', kind, 'delete', f'{self._tag}{host}'], capture_output=True)
    subprocess.run(['ip', 'link', 'delete', self._tag], capture_output=True)

  def _add(self, host):
    namespace = link = f'{self._tag}{host}'
    _ip('netns', 'add', namespace)
    _ip('link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace)
    _ip('link', 'set', link, 'master', self._tag, 'up')
    _ip('-n', namespace, 'addr', 'add', f'{self.address_of(host)}/24', 'dev', 'eth0')
    for device in ('eth0', 'lo'):
      _ip('-n', namespace, 'link', 'set', device, 'up')


def _ip(*arguments):
  subprocess.run(['ip', *arguments], check=True)


def _command_line(pid):
  try:
    return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().replace(b'\0', b' ').decode()
  except (FileNotFoundError, ProcessLookupError):
    return ''
