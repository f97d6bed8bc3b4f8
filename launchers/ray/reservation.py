"""Ray's resource reservations for the nodes of a group, and their machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import (
  NodeAffinitySchedulingStrategy,
  PlacementGroupSchedulingStrategy,
)

from launchers.placement import Resources

TPU_COUNTS = (1, 2, 4, 8)
_RESERVED = {'CPU': 'cpus', 'GPU': 'num_devices', 'TPU': 'num_devices', 'memory': 'memory_gb'}
# Ray's name for the resource of the first host of a TPU slice, as in TPU-v4-16-head.
_SLICE_HEAD = re.compile('TPU-.+-head')


def options(label: str, resources: Resources, launcher_node_id: str = '') -> dict[str, Any]:
  """Returns the options of a group's supervisor actors, which reserve resources for each node.

  Args:
    label: the group.
    resources: resources of the group.
    launcher_node_id: Ray's id of the launcher's machine; '' where only the amounts matter.

  Raises:
    ValueError: if Ray cannot reserve the resources; one sentence that names the group.
  """
  devices, extra = resources.device_count, dict(resources.resources)
  for name in extra:
    if name in _RESERVED:
      raise ValueError(
        f'group {label!r} asks for {name} among its resources; use the field {_RESERVED[name]}.'
      )
  if resources.accelerator_kind == 'tpu':
    if devices not in TPU_COUNTS:
      raise ValueError(
        f'group {label!r} needs {devices} TPU devices, but Ray sets aside 1, 2, 4 or 8 of a host; '
        'set num_devices with --placement.'
      )
    extra['TPU'] = devices
  result: dict[str, Any] = {'num_cpus': resources.cpus, 'resources': extra}
  if resources.accelerator == 'gpu':
    result['num_gpus'] = devices
  if resources.memory_gb:
    result['memory'] = int(resources.memory_gb * 2**30)
  if resources.labels:
    result['label_selector'] = dict(resources.labels)
  if resources.with_launcher:
    if launcher_node_id:
      result['scheduling_strategy'] = NodeAffinitySchedulingStrategy(launcher_node_id, soft=False)
  elif resources.accelerator is None:
    result['scheduling_strategy'] = 'SPREAD'
  return result


def amounts(wanted: Mapping[str, Any]) -> dict[str, float]:
  """Returns the amounts that `options` reserve, by Ray's resource names; memory in bytes."""
  claims = {
    'CPU': wanted['num_cpus'],
    'GPU': wanted.get('num_gpus', 0),
    'memory': wanted.get('memory', 0),
    **wanted['resources'],
  }
  return {name: amount for name, amount in claims.items() if amount}


def is_gang(resources: Resources, num_nodes: int) -> bool:
  """Returns whether all nodes of a group are placed together or not at all.

  This holds for several nodes with accelerators, unless they are placed with the launcher.
  """
  return resources.accelerator is not None and num_nodes > 1 and not resources.with_launcher


def gang(label: str, resources: Resources, num_nodes: int) -> dict[str, Any]:
  """Returns the arguments of the placement group for all nodes of a group.

  Each TPU node has a separate host, because one process uses all chips of a host in a slice. Only the
  first node requests the resource of the slice's first host.
  """
  every = amounts(options(label, resources))
  others = {name: amount for name, amount in every.items() if not _SLICE_HEAD.fullmatch(name)}
  return {
    'bundles': [every, *(dict(others) for _ in range(num_nodes - 1))],
    'strategy': 'STRICT_SPREAD' if resources.accelerator_kind == 'tpu' else 'SPREAD',
    'bundle_label_selector': [dict(resources.labels) for _ in range(num_nodes)],
  }


def in_gang(group: PlacementGroup, index: int) -> dict[str, Any]:
  """Returns the options of the supervisor actor of one node of a gang."""
  extra = dict(group.bundle_specs[index])
  return {
    'num_cpus': extra.pop('CPU', 0),
    'num_gpus': extra.pop('GPU', 0),
    'memory': extra.pop('memory', None),
    'resources': extra,
    'scheduling_strategy': PlacementGroupSchedulingStrategy(group, index),
  }


def check(placement: Mapping[str, Resources]) -> None:
  """Raises the ValueError of `options` if Ray cannot reserve the resources of a group."""
  for label, resources in placement.items():
    options(label, resources)
