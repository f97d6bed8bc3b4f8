"""Drill: a network that loses and delays packets, and for a while is down."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

import psutil

from benchmarks.drills.checks import Checks, Refused
from benchmarks.drills.subject import Subject

LOSS = 0.02
DELAY_MS = 20
# If the kernel cannot delay packets, they queue above this rate.
RATE = '16mbit'
BAD_SECONDS = 60.0
AWAY_SECONDS = 30.0
_NETEM = ('netem', 'delay', f'{DELAY_MS}ms', f'{DELAY_MS // 2}ms', 'loss')


def commands(loss: float, netem: bool) -> list[list[str]]:
  """Returns the tc commands that degrade a loopback interface; run `CLEAR` first.

  Args:
    loss: probability that a packet is lost.
    netem: whether the kernel has the netem queue, which delays and loses packets. If not, a random
      filter sends lost packets to a queue without room, and limits the rate of the others.
  """
  if netem:
    return [['tc', 'qdisc', 'add', 'dev', 'lo', 'root', *_NETEM, f'{100 * loss:g}%']]
  threshold = min(round(loss * 2**32), 2**32 - 1)
  # Loads a random number; matches if it is below the threshold.
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
  """Returns whether the kernel has netem; tries it in a new network namespace.

  Raises:
    Refused: no namespace can be made, tc is missing, or the kernel has no way to lose packets.
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
  """The loopback interface in the network namespace of a single run."""

  def __init__(self, pid: int, netem: bool):
    """Looks up the namespace.

    Args:
      pid: process id of one that is in it for as long as the run lasts.
      netem: see `commands`.

    Raises:
      Refused: the run shares the network namespace of this process.
    """
    if os.readlink(f'/proc/{pid}/ns/net') == os.readlink('/proc/self/ns/net'):
      raise Refused('the run has no network of its own to be made bad.')
    self._enter = ['nsenter', '--target', str(pid), '--net']
    self._netem = netem

  def lose(self, loss: float) -> None:
    """Loses packets with probability `loss` and delays the others, until `heal`."""
    self.heal()
    for command in commands(loss, self._netem):
      self._run(command)

  def heal(self) -> None:
    """Stops the losses and delays."""
    subprocess.run([*self._enter, *CLEAR], capture_output=True, check=False)

  def _run(self, command: Sequence[str]) -> None:
    done = subprocess.run([*self._enter, *command], capture_output=True, text=True)
    assert not done.returncode, f'{" ".join(command)}: {done.stderr}'


def loses_and_delays(directory: str, checks: Checks) -> None:
  """Degrades the network, kills nodes meanwhile, then takes the network down and up again.

  Args:
    directory: an existing directory.
    checks: collects the results.

  Raises:
    Refused: this system does not allow it.
  """
  netem = has_netem()
  # Rows cross the network, as if the actors were on another machine.
  flags = ('--isolate=require', '--audit', '--shared_memory=false')
  with Subject(directory, checks, *flags, deadline=300) as subject:
    pids = subject.begin()
    # That of the process which forks the nodes; the launcher itself stays outside.
    network = Network(psutil.Process(pids['monitor-0']).ppid(), netem)
    how = f'{DELAY_MS} ms later' if netem else f'the others at {RATE} at most'
    network.lose(LOSS)
    steps = subject.program.learner_steps()
    time.sleep(BAD_SECONDS)
    subject.unharmed(pids, f'{LOSS:.0%} of all packets lost, {how}')
    gained = subject.program.learner_steps() - steps
    checks.add(gained > 0, f'it trains meanwhile ({gained:.0f} learner steps)')
    for node in sorted(pids):
      subject.kill(node)
      checks.add(True, f'{node} restarts on that network')
    pids = subject.pids()
    network.lose(1.0)
    time.sleep(AWAY_SECONDS)
    network.heal()
    for node in sorted(pids):
      subject.works(node)
    subject.unharmed(pids, f'no network for {AWAY_SECONDS:g} s')
    subject.stop()
