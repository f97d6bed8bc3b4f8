"""What processes.csv says of a run's processes and of the machine."""

import math

import pytest

from viewing.processes import Processes

OLD = 'time,node,doing,seconds,memory_mib,cpu_seconds,open_files,threads,host'


def _processes(tmp_path, *rows, header=f'{OLD},idle_seconds'):
  lines = [f'{time},{node},playing,1,9,{used},5,6,{rest}' for time, node, used, rest in rows]
  (tmp_path / 'processes.csv').write_text('\n'.join([header, *lines, '']))
  processes = Processes(str(tmp_path))
  processes.update()
  return processes


def test_cores_are_those_between_the_last_two_samples(tmp_path):
  found = _processes(
    tmp_path,
    *((0, 'actor/0', 0.0, 'a,50.0'), (0, 'learner/0', 0.0, 'a,50.0')),
    *((30, 'actor/0', 3.0, 'a,60.0'), (30, 'learner/0', 9.0, 'a,60.0')),
    *((60, 'actor/0', 9.0, 'a,75.0'), (60, 'learner/0', 30.0, 'a,75.0')),
  )
  assert found.cores_used() == pytest.approx(0.9) and found.cores_idle() == pytest.approx(0.5)


@pytest.mark.parametrize(
  'header, first, last',
  [
    (f'{OLD},idle_seconds', 'a,50.0', 'b,60.0'),  # Several machines.
    (f'{OLD},idle_seconds', 'a,0.0', 'a,0.0'),  # The kernel does not say.
    (OLD, 'a', 'a'),  # An earlier version.
    (OLD, 'a', 'a,60.0'),  # A run of one, resumed.
  ],
)
def test_idle_cores_may_be_unknown(tmp_path, header, first, last):
  rows = (0, 'actor/0', 0.0, first), (0, 'actor/1', 0.0, first), (30, 'actor/1', 3.0, last)
  assert math.isnan(_processes(tmp_path, *rows, header=header).cores_idle())
