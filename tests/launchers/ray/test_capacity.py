"""Whether the machines of a Ray cluster can run a program at all."""

import launchpad as lp
import pytest

from launchers.placement import Resources
from launchers.ray import capacity
from tests.launchers import nodes

HERE = 'a'


def _machine(name, labels=None, **resources):
  return {'NodeID': name, 'Resources': resources, 'Labels': labels or {}}


def _program(**sizes):
  program = lp.Program('test')
  for label, size in sizes.items():
    with program.group(label):
      for _ in range(size):
        program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  return program


SLICE = Resources(accelerator='tpu', num_devices=4, resources={'TPU-v4-16-head': 1}, cpus=0)


@pytest.mark.parametrize(
  'sizes, resources, machines, expected',
  [
    ({'g': 4}, Resources(), [{'CPU': 2}, {'CPU': 2}], ''),
    (
      {'g': 5},
      Resources(),
      [{'CPU': 2}, {'CPU': 2}],
      'the 5 nodes of the program need 5 CPU, and the 2 machines of the cluster have 4 CPU in total',
    ),
    ({'g': 10}, Resources(cpus=0.1), [{'CPU': 1}], ''),
    ({'g': 100}, Resources(cpus=0), [{}], ''),
    (
      {'g': 1},
      Resources(cpus=3),
      [{'CPU': 2}, {'CPU': 2}],
      "group 'g' needs 3 CPU for each node, and the 2 machines of the cluster have 4 CPU in total",
    ),
    (
      {'g': 1},
      Resources(cpus=2, labels={'pool': 'a'}),
      [{'CPU': 2}],
      "group 'g' needs 2 CPU and label pool=a for each node, and the 1 machine of the cluster has 2 CPU "
      'in total',
    ),
    (
      {'g': 2},
      Resources(cpus=0, memory_gb=3),
      [{'CPU': 2, 'memory': 5 * 2**30}],
      'the 2 nodes of the program need 6 GB of memory, and the 1 machine of the cluster has 2 CPU, 5 GB '
      'of memory in total',
    ),
    ({'g': 2}, SLICE, [{'TPU': 4, 'TPU-v4-16-head': 1}, {'TPU': 4}], ''),
    (
      {'g': 2},
      SLICE,
      [{'TPU': 8, 'TPU-v4-16-head': 1}],
      "group 'g' needs 4 TPU and 1 TPU-v4-16-head on 2 machines at once, and the 1 machine of the "
      'cluster has 0 CPU, 8 TPU, 1 TPU-v4-16-head in total',
    ),
  ],
)
def test_a_program_that_the_machines_cannot_run_even_if_idle_is_found(
  sizes, resources, machines, expected
):
  present = [_machine(str(i), **amounts) for i, amounts in enumerate(machines)]
  placement = dict.fromkeys(sizes, resources)
  assert capacity.shortage(_program(**sizes), placement, present, HERE) == expected


def test_a_group_beside_the_launcher_needs_room_on_its_machine():
  program, placement = _program(g=1), {'g': Resources(with_launcher=True)}
  there = [_machine(HERE, CPU=0), _machine('b', CPU=8)]
  assert capacity.shortage(program, placement, there, HERE) == (
    "group 'g' needs 1 CPU and the launcher's machine for each node, and the 2 machines of the cluster "
    'have 8 CPU in total'
  )
  assert capacity.shortage(program, placement, there, 'b') == ''
