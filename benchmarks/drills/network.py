"""A network that loses packets and delays them, and for a while is not there at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

from benchmarks.drills.checks import Checks, Refused
from benchmarks.drills.subject import Subject

LOSS = 0.02
DELAY_MS = 20
# Where the kernel cannot delay, what comes faster than this waits in a queue.
RATE = '16mbit'
BAD_SECONDS = 60.0
AWAY_SECONDS = 30.0
_NETEM = ('netem', 'delay', f'{DELAY_MS}ms', f'{DELAY_MS // 2}ms', 'loss')


def commands(loss: float, netem: bool) -> list[list[str]]:
  """Returns the commands of tc that make a loopback interface bad; `CLEAR` comes before them.

  Args:
    loss: probability that a packet is lost.
    netem: whether the kernel has the queue that delays and loses. If not, a filter by a random number
      sends what is to be lost to a queue that has no room, and the rest is kept to a rate.
  """
  if netem:
    return [['tc', 'qdisc', 'add', 'dev', 'lo', 'root', *_NETEM, f'{100 * loss:g}%']]
  threshold = min(round(loss * 2**32), 2**32 - 1)
  # Loads a random number; below the threshold it matches, else it does not.
  lose = f'4,32 0 0 {2**32 - 0x1000 + 56},53 0 1 {threshold},6 0 0 0,6 0 0 {2**32 - 1}'
  tc = (
    'qdisc add dev lo root handle 1: htb default 10',
    f'class add dev lo parent 1: classid 1:10 htb rate {RATE} burst 128k',
    f'class add dev lo parent 1: classid 1:20 htb rate {RATE}',
    'qdisc add dev lo parent 1:20 bfifo limit 1',
  )
  drop = 'filter add dev lo parent 1: protocol all bpf bytecode'
  return [
    *(['tc', *line.split()] for line in tc),
    ['tc', *drop.split(), lose, 'flowid', '1:20'],
  ]


CLEAR = ['tc', 'qdisc', 'del', 'dev', 'lo', 'root']


def has_netem() -> bool:
  """Tries, in a network namespace of its own, whether the kernel has netem.

  Raises:
    Refused: there is no such namespace, or no tc, or neither way of losing packets.
  """
  if os.geteuid() or not shutil.which('tc') or not shutil.which('nsenter'):
    raise Refused(
      'the drill with a bad network needs root, tc (iproute2) and nsenter (util-linux).'
    )
  for netem in (True, False):
    script = ' && '.join(' '.join(map(_quoted, command)) for command in commands(LOSS, netem))
    done = subprocess.run(['unshare', '--net', 'sh', '-c', script], capture_output=True, text=True)
    if not done.returncode:
      return netem
  raise Refused(f'this kernel cannot lose packets on purpose: {done.stderr.strip()}')


def _quoted(word: str) -> str:
  return f"'{word}'"


class Network:
  """The loopback interface in the network namespace of a run, and of no other."""

  def __init__(self, pid: int, netem: bool):
    """Takes hold of it.

    Args:
      pid: of the launcher.
      netem: see `commands`.

    Raises:
      Refused: the run shares the network of this process.
    """
    if os.readlink(f'/proc/{pid}/ns/net') == os.readlink('/proc/self/ns/net'):
      raise Refused('the run has no network of its own to be made bad.')
    self._enter = ['nsenter', '--target', str(pid), '--net']
    self._netem = netem

  def lose(self, loss: float) -> None:
    """Loses packets from now on, with a probability, and delays the others."""
    self.heal()
    for command in commands(loss, self._netem):
      self._run(command)

  def heal(self) -> None:
    """Neither loses nor delays any longer."""
    subprocess.run([*self._enter, *CLEAR], capture_output=True, check=False)

  def _run(self, command: Sequence[str]) -> None:
    done = subprocess.run([*self._enter, *command], capture_output=True, text=True)
    assert not done.returncode, f'{" ".join(command)}: {done.stderr}'


def loses_and_delays(directory: str, checks: Checks) -> None:
  """Makes the network bad for a while, kills nodes meanwhile, and takes it away and gives it back.

  Args:
    directory: an existing one.
    checks: gets what holds.

  Raises:
    Refused: this system does not allow it.
  """
  netem = has_netem()
  with Subject(directory, checks, '--isolate=require', '--audit', deadline=300) as subject:
    pids = subject.begin()
    network = Network(subject.program.launcher.pid, netem)
    how = f'{DELAY_MS} ms later' if netem else f'the others at {RATE} at most'
    network.lose(LOSS)
    steps = subject.program.learner_steps()
    time.sleep(BAD_SECONDS)
    subject.unharmed(pids, f'{LOSS:.0%} of all packets lost, {how}')
    gained = subject.program.learner_steps() - steps
    checks.add(gained > 0, f'it trains meanwhile ({gained:.0f} learner steps)')
    for node in sorted(pids):
      subject.kill(node)
      checks.add(True, f'{node} comes back on that network')
    pids = subject.pids()
    network.lose(1.0)
    time.sleep(AWAY_SECONDS)
    network.heal()
    for node in sorted(pids):
      subject.works(node)
    subject.unharmed(pids, f'no network for {AWAY_SECONDS:g} s')
    subject.stop()
