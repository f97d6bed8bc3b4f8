"""A real Slurm cluster on this machine: each host is a network namespace with a hostname of its own.

munged, slurmctld and one slurmd per host run as children of this process, with their files in one
directory, a munge key of their own, and addresses on a bridge of their own. Needs root.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import time

from tests.ports import unused_port
from tests.waiting import DEADLINE

PROGRAMS = (
  'munged',
  'slurmctld',
  'slurmd',
  'sbatch',
  'srun',
  'scontrol',
  'ip',
  'unshare',
  'setpriv',
)
HOSTS = ('h1', 'h2', 'h3')
_CONTROLLER = 'ctl'
_CONFIG = """
ClusterName=test
SlurmctldHost={controller}({subnet}.1)
SlurmUser=root
SlurmctldPort={port}
SlurmdPort=6818
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir={directory}/spool-%n
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
SlurmdTimeout=60
SlurmdParameters=config_overrides
TreeWidth=65533
GresTypes=tpu
NodeName=h1 NodeAddr={subnet}.11 CPUs=4 Gres=tpu:4 State=UNKNOWN
NodeName=h2 NodeAddr={subnet}.12 CPUs=4 Feature=workers State=UNKNOWN
NodeName=h3 NodeAddr={subnet}.13 CPUs=4 Feature=workers State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=h1,h2,h3 Default=YES MaxTime=30 PriorityTier=1 State=UP
PartitionName=urgent Nodes=h1,h2,h3 MaxTime=30 PriorityTier=2 PreemptMode=OFF State=UP
"""


def missing():
  """Returns what a cluster needs and this machine lacks, or an empty string."""
  if os.geteuid() != 0:
    return 'root, to make network namespaces'
  absent = [p for p in PROGRAMS if shutil.which(p) is None]
  if absent:
    return f'{", ".join(absent)}, which "make slurm" installs on Debian'
  if subprocess.run(['unshare', '--net', '--uts', '--mount', 'true']).returncode:
    return 'the right to make network namespaces'
  if not os.path.isdir('/sys/fs/cgroup/freezer'):
    return 'cgroup v1, to which the configuration of its slurmd is set'
  return ''


class SlurmCluster:
  """A controller and the hosts h1, which claims four TPUs, and h2 and h3, of feature 'workers'.

  Attributes:
    config: the path of slurm.conf.
    unshared: a directory that every host shares but h3.
  """

  def __init__(self, directory):
    """Starts it; `directory` must be new, with a short path."""
    self._directory = pathlib.Path(directory)
    self._tag = f'lp{os.getpid()}'
    self._subnet = f'10.77.{os.getpid() % 250}'
    self._daemons = {}
    self.config = self._directory / 'slurm.conf'
    self.unshared = self._directory / 'unshared'
    try:
      self._write_files()
      self._start('munged', self._munged())
      self._wait(lambda: (self._directory / 'munge.socket').exists(), 'munged')
      self._add_bridge()
      self._start('slurmctld', self._isolated(_CONTROLLER, 'exec slurmctld -D'))
      for host in HOSTS:
        self._add_host(host)
        self.start_host(host)
      self.wait_until_idle()
    except BaseException:
      self.close()
      raise

  @property
  def environment(self):
    """The variables with which the programs of Slurm find this cluster."""
    return {**os.environ, 'SLURM_CONF': str(self.config)}

  def run(self, *command):
    """Runs a command of Slurm's; returns its output."""
    done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout

  def states(self):
    """Returns the state of each host, as sinfo says it."""
    try:
      lines = self.run('sinfo', '-h', '-N', '-o', '%N %t').splitlines()
    except AssertionError:
      return {}
    return dict(line.split() for line in lines)

  def wait_until_idle(self):
    """Waits until every host is there and has no job."""
    self._wait(lambda: self.states() == dict.fromkeys(HOSTS, 'idle'), 'the hosts')

  def start_host(self, host):
    """Starts the slurmd of a host."""
    command = f'exec slurmd -D -N {host}'
    if host == 'h3':
      command = f'mount -t tmpfs none {self.unshared}; {command}'
    self._start(host, ['ip', 'netns', 'exec', f'{self._tag}{host}', *self._isolated(host, command)])

  def processes(self, host, command=''):
    """Returns the ids of the processes on a host whose command lines begin like that."""
    pids = subprocess.run(
      ['ip', 'netns', 'pids', f'{self._tag}{host}'], capture_output=True, text=True, check=True
    ).stdout.split()
    return [int(pid) for pid in pids if _command_line(pid).startswith(command)]

  def lose_host(self, host):
    """Kills all that runs on a host at once, and has the controller know at once."""
    for pid in self.processes(host):
      with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    self._daemons.pop(host).wait()
    self.run('scontrol', 'update', f'nodename={host}', 'state=down', 'reason=lost')

  def close(self):
    """Stops every process and removes the namespaces and the bridge."""
    for host in HOSTS:
      with contextlib.suppress(subprocess.CalledProcessError):
        for pid in self.processes(host):
          with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for daemon in self._daemons.values():
      daemon.kill()
      daemon.wait()
    for host in HOSTS:
      subprocess.run(['ip', 'netns', 'delete', f'{self._tag}{host}'], capture_output=True)
    subprocess.run(['ip', 'link', 'delete', self._tag], capture_output=True)

  def _write_files(self):
    self._directory.mkdir(exist_ok=True)
    self._directory.chmod(0o755)
    for name in ('state', 'unshared'):
      (self._directory / name).mkdir()
    for host in HOSTS:
      (self._directory / f'spool-{host}').mkdir()
    key = self._directory / 'munge.key'
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    self.config.write_text(
      _CONFIG.format(
        directory=self._directory,
        subnet=self._subnet,
        controller=_CONTROLLER,
        port=unused_port(),
      )
    )
    (self._directory / 'gres.conf').write_text('NodeName=h1 Name=tpu Count=4\n')
    (self._directory / 'cgroup.conf').write_text('CgroupPlugin=cgroup/v1\n')
    addresses = [f'{self._subnet}.1 {_CONTROLLER}']
    addresses += [f'{self._subnet}.{11 + i} {host}' for i, host in enumerate(HOSTS)]
    (self._directory / 'hosts').write_text('127.0.0.1 localhost\n' + '\n'.join(addresses) + '\n')

  def _munged(self):
    paths = {'key-file': 'key', 'socket': 'socket', 'pid-file': 'pid', 'seed-file': 'seed'}
    options = [f'--{option}={self._directory}/munge.{name}' for option, name in paths.items()]
    return ['munged', '--foreground', '--force', *options]

  def _isolated(self, hostname, command):
    """Returns a command that runs another under a hostname, where the hosts' names are known."""
    script = f'hostname {hostname}; mount --bind {self._directory}/hosts /etc/hosts; {command}'
    return ['unshare', '--uts', '--mount', 'sh', '-ec', script]

  def _add_bridge(self):
    _ip('link', 'add', self._tag, 'type', 'bridge')
    _ip('addr', 'add', f'{self._subnet}.1/24', 'dev', self._tag)
    _ip('link', 'set', self._tag, 'up')

  def _add_host(self, host):
    namespace = link = f'{self._tag}{host}'
    address = f'{self._subnet}.{11 + HOSTS.index(host)}/24'
    _ip('netns', 'add', namespace)
    _ip('link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespace)
    _ip('link', 'set', link, 'master', self._tag, 'up')
    _ip('-n', namespace, 'addr', 'add', address, 'dev', 'eth0')
    for device in ('eth0', 'lo'):
      _ip('-n', namespace, 'link', 'set', device, 'up')

  def _start(self, name, command):
    with open(self._directory / f'{name}.out', 'ab') as out:
      self._daemons[name] = subprocess.Popen(
        ['setpriv', '--pdeathsig', 'KILL', *command],
        env=self.environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=out,
        start_new_session=True,
      )

  def _wait(self, condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
      dead = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
      if dead or time.monotonic() > end:
        logs = sorted(self._directory.glob('*.out')) + sorted(self._directory.glob('*.log'))
        text = '\n'.join(f'{path.name}: {path.read_text()[-2000:]}' for path in logs)
        raise RuntimeError(f'{what} did not come up; dead: {dead}\n{text}')
      time.sleep(0.1)


def _ip(*arguments):
  subprocess.run(['ip', *arguments], check=True)


def _command_line(pid):
  try:
    return pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().replace(b'\0', b' ').decode()
  except (FileNotFoundError, ProcessLookupError):
    return ''
