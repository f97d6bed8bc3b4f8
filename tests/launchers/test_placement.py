import launchpad as lp
import pytest

from launchers import describe, placement
from launchers.placement import Resources
from tests.launchers import nodes


def test_a_cpu_worker_sees_no_accelerator():
  variables = placement.environment_variables(Resources())
  assert variables['JAX_PLATFORMS'] == 'cpu'
  assert variables['CUDA_VISIBLE_DEVICES'] == ''
  assert variables['TPU_VISIBLE_CHIPS'] == ''


def test_an_accelerator_host_sees_the_devices_it_was_given_and_keeps_their_memory_free():
  variables = placement.environment_variables(Resources(accelerator='gpu', devices=(1, 3)))
  assert variables['CUDA_VISIBLE_DEVICES'] == '1,3'
  assert variables['XLA_PYTHON_CLIENT_PREALLOCATE'] == 'false'
  assert variables['JAX_PLATFORMS'].startswith('cuda')
  variables = placement.environment_variables(Resources(accelerator='tpu', devices=(0,)))
  assert variables['TPU_VISIBLE_CHIPS'] == '0'
  assert 'CUDA_VISIBLE_DEVICES' in placement.environment_variables(Resources(accelerator='tpu'))
  assert 'TPU_VISIBLE_CHIPS' not in placement.environment_variables(Resources(accelerator='tpu'))


def test_own_variables_come_last():
  variables = placement.environment_variables(Resources(env={'OMP_NUM_THREADS': '7'}))
  assert variables['OMP_NUM_THREADS'] == '7'


def test_an_unknown_accelerator_is_refused():
  with pytest.raises(ValueError, match="accelerator 'abacus'"):
    Resources(accelerator='abacus')


def test_a_group_without_placement_is_named():
  program = nodes.program((nodes.Crasher, False, ''))
  with pytest.raises(ValueError, match=r"group 'node0' .* has no placement"):
    placement.check(program, {'echo': Resources()})


def test_edges_go_from_the_holder_of_a_handle_to_its_server():
  program = nodes.program((nodes.Caller, True, ''), (nodes.Crasher, False, ''))
  with program.group('many'):
    for _ in range(3):
      program.add_node(lp.PyClassNode(nodes.Crasher, ''))
  assert describe.edges(program) == {('node0', 'echo'): 1}
  text = describe.describe(program, {label: Resources() for label in program.groups})
  assert '3 x PyClassNode(Crasher)' in text
