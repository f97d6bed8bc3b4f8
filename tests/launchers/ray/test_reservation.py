"""What Ray is asked to set aside."""

import pytest

from launchers.placement import Resources
from launchers.ray import reservation

NODE_ID = 'ab' * 28  # Ray refuses what cannot be an id.


@pytest.mark.parametrize(
  'resources, expected',
  [
    (Resources(), {'num_cpus': 1.0, 'resources': {}, 'scheduling_strategy': 'SPREAD'}),
    (
      Resources(cpus=2, memory_gb=0.5, labels={'pool': 'a'}),
      {
        'num_cpus': 2,
        'resources': {},
        'memory': 2**29,
        'label_selector': {'pool': 'a'},
        'scheduling_strategy': 'SPREAD',
      },
    ),
    (
      Resources(accelerator='gpu', devices=(1, 3)),
      {'num_cpus': 1.0, 'resources': {}, 'num_gpus': 2},
    ),
    (Resources(accelerator='tpu'), {'num_cpus': 1.0, 'resources': {'TPU': 1}}),
    (
      Resources(accelerator='tpu', num_devices=8, resources={'slice-0': 1}),
      {'num_cpus': 1.0, 'resources': {'TPU': 8, 'slice-0': 1}},
    ),
  ],
)
def test_ray_reserves_the_resources_of_a_node(resources, expected):
  assert reservation.options('group', resources) == expected


def test_several_tpu_nodes_get_a_host_each_and_the_first_one_the_head_of_the_slice():
  resources = Resources(
    cpus=0,
    memory_gb=1,
    accelerator='tpu',
    num_devices=4,
    resources={'TPU-v4-16-head': 1, 'my-slice': 1},
    labels={'zone': 'b'},
  )
  host = {'TPU': 4, 'my-slice': 1, 'memory': 2**30}
  assert reservation.gang('learner', resources, 3) == {
    'bundles': [host | {'TPU-v4-16-head': 1}, host, host],
    'strategy': 'STRICT_SPREAD',
    'bundle_label_selector': [{'zone': 'b'}] * 3,
  }


@pytest.mark.parametrize(
  'resources, num_nodes, expected',
  [
    (Resources(accelerator='tpu'), 2, True),
    (Resources(accelerator='gpu'), 2, True),
    (Resources(accelerator='tpu'), 1, False),
    (Resources(), 5, False),
    (Resources(accelerator='gpu', with_launcher=True), 2, False),
  ],
)
def test_only_nodes_that_share_accelerators_get_room_all_at_once(resources, num_nodes, expected):
  assert reservation.is_gang(resources, num_nodes) == expected


def test_resources_that_ray_cannot_reserve_are_rejected():
  with pytest.raises(ValueError, match=r"'learner' needs 3 TPU devices, but .* 1, 2, 4 or 8"):
    reservation.check({'learner': Resources(accelerator='tpu', num_devices=3)})
  with pytest.raises(ValueError, match=r"'learner' asks for CPU .* use the field cpus"):
    reservation.check({'learner': Resources(resources={'CPU': 3})})


def test_a_group_beside_the_launcher_is_held_to_its_machine():
  strategy = reservation.options('g', Resources(with_launcher=True), NODE_ID)['scheduling_strategy']
  assert (strategy.node_id, strategy.soft) == (NODE_ID, False)
