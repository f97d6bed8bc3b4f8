"""A real Slurm cluster on this machine: each host is a network namespace with a hostname of its own.

munged, slurmctld and one slurmd per host run as children of this process, with their files in one
directory, a munge key of their own, and addresses on a bridge of their own. Needs root.
"""

import os
import pathlib
import shutil
import subprocess
import time

from tests.launchers import hosts
from tests.ports import unused_port
from tests.waiting import DEADLINE

PROGRAMS = ('munged', 'slurmctld', 'slurmd', 'sbatch', 'srun', 'scontrol')
HOSTS = ('h1', 'h2', 'h3')
_CONTROLLER = 'ctl'
_CONFIG = """
ClusterName=test
SlurmctldHost={controller}({addresses[here]})
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
NodeName=h1 NodeAddr={addresses[h1]} CPUs=4 Gres=tpu:4 State=UNKNOWN
NodeName=h2 NodeAddr={addresses[h2]} CPUs=4 Feature=workers State=UNKNOWN
NodeName=h3 NodeAddr={addresses[h3]} CPUs=4 Feature=workers State=UNKNOWN
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=h1,h2,h3 Default=YES MaxTime=30 PriorityTier=1 State=UP
PartitionName=urgent Nodes=h1,h2,h3 MaxTime=30 PriorityTier=2 PreemptMode=OFF State=UP
"""


def missing():
  """Returns what a cluster needs and this machine lacks, or an empty string."""
  if absent := [p for p in PROGRAMS if shutil.which(p) is None]:
    return f'{", ".join(absent)}, which "make slurm" installs on Debian'
  if other := hosts.missing():
    return other
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
    self._directory.mkdir(exist_ok=True)
    self._directory.chmod(0o755)
    self.config = self._directory / 'slurm.conf'
    self.unshared = self._directory / 'unshared'
    self._hosts = hosts.Hosts(directory, HOSTS, _CONTROLLER)
    try:
      self._write_files()
      self._start('munged', self._munged())
      self._wait(lambda: (self._directory / 'munge.socket').exists(), 'munged')
      self._start('slurmctld', self._hosts.here(_CONTROLLER, 'exec slurmctld -D'))
      for host in HOSTS:
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
    self._start(host, self._hosts.on(host, command))

  def processes(self, host, command=''):
    """Returns the ids of the processes on a host whose command lines begin like that."""
    return self._hosts.processes(host, command)

  def lose_host(self, host):
    """Kills all that runs on a host at once, and has the controller know at once."""
    self._hosts.kill_all(host)
    self._hosts.daemons.pop(host).wait()
    self.run('scontrol', 'update', f'nodename={host}', 'state=down', 'reason=lost')

  def close(self):
    """Stops every process and removes the hosts."""
    self._hosts.close()

  def _write_files(self):
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
        addresses={'here': self._hosts.address} | {h: self._hosts.address_of(h) for h in HOSTS},
        controller=_CONTROLLER,
        port=unused_port(),
      )
    )
    (self._directory / 'gres.conf').write_text('NodeName=h1 Name=tpu Count=4\n')
    (self._directory / 'cgroup.conf').write_text('CgroupPlugin=cgroup/v1\n')

  def _munged(self):
    paths = {'key-file': 'key', 'socket': 'socket', 'pid-file': 'pid', 'seed-file': 'seed'}
    options = [f'--{option}={self._directory}/munge.{name}' for option, name in paths.items()]
    return ['munged', '--foreground', '--force', *options]

  def _start(self, name, command):
    self._hosts.start(name, command, env=self.environment)

  def _wait(self, condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
      dead = [name for name, daemon in self._hosts.daemons.items() if daemon.poll() is not None]
      if dead or time.monotonic() > end:
        logs = sorted(self._directory.glob('*.out')) + sorted(self._directory.glob('*.log'))
        text = '\n'.join(f'{path.name}: {path.read_text()[-2000:]}' for path in logs)
        raise RuntimeError(f'{what} did not come up; dead: {dead}\n{text}')
      time.sleep(0.1)
