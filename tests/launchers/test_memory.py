"""What the kernel's counts say about a node that was killed."""

import dataclasses

import pytest

from launchers.heartbeat import Beat
from launchers.memory import Kills

BEAT = Beat('playing', 1.0, 0.0, 1.0, 1234.0, 1.0, 5, 5)


class Kernel:
  """Its files of a machine: `groups` are lines of /proc/self/cgroup, `counts` are of kills by file."""

  def __init__(self, directory, groups, **counts):
    self._directory = directory
    self.write('proc/self/cgroup', groups)
    for name, count in counts.items():
      self.count(name, count)

  def write(self, name, content):
    path = self._directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)

  def count(self, name, count):
    self.write(name, f'oom 7\noom_kill {count}\n')

  def kills(self):
    return Kills(str(self._directory / 'proc'), str(self._directory / 'cgroup'))


V2, V1 = '0::/a/b\n', '5:cpu:/a\n4:hugetlb,memory:/a/b\n0::/\n'
OWN_V2, OWN_V1 = 'cgroup/a/b/memory.events', 'cgroup/memory/a/b/memory.oom_control'
CONTAINER_V2, CONTAINER_V1 = 'cgroup/memory.events', 'cgroup/memory/memory.oom_control'
MACHINE = 'proc/vmstat'


@pytest.mark.parametrize(
  'groups, counted',
  [
    (V2, OWN_V2),
    (V2, CONTAINER_V2),
    (V1, OWN_V1),
    (V1, CONTAINER_V1),
    ('0::/\n', MACHINE),
    ('', MACHINE),
  ],
)
def test_a_kill_by_the_kernel_is_named_and_one_of_another_group_is_not(tmp_path, groups, counted):
  kernel = Kernel(tmp_path, groups, **{MACHINE: 5, counted: 5})
  kills = kernel.kills()
  kills.look(BEAT)
  assert kills.explain() == ''
  if counted != MACHINE:
    kernel.count(MACHINE, 6)  # Of another group.
    assert kills.explain() == ''
  kernel.count(counted, 6)
  said = kills.explain()
  assert said.startswith(' when it held 1,234 MiB, and the kernel has killed a process')
  assert kernel.kills().explain() == ''  # Of the next incarnation.


def test_a_kill_before_the_last_heartbeats_is_not_the_cause(tmp_path):
  kernel = Kernel(tmp_path, '', **{MACHINE: 0})
  kills = kernel.kills()
  beats = [dataclasses.replace(BEAT, seconds=float(second)) for second in range(4)]
  kills.look(beats[0])
  kernel.count(MACHINE, 1)
  for _ in range(9):  # The supervisor looks more often than a node sends.
    kills.look(beats[1])
  assert kills.explain()  # The last heartbeat may have been read after the kill.
  kills.look(beats[2])
  assert kills.explain() == ''


def test_a_node_that_was_killed_before_its_first_heartbeat_has_no_figure(tmp_path):
  kernel = Kernel(tmp_path, '', **{MACHINE: 0})
  kills = kernel.kills()
  kills.look(None)
  kernel.count(MACHINE, 1)
  assert kills.explain().startswith(', and the kernel has killed a process')


def test_a_machine_that_counts_nothing_names_no_cause(tmp_path):
  assert Kernel(tmp_path, V2).kills().explain() == ''
