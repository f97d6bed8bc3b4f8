"""Checks for the plug-ins of accelerators, and chooses GPUs of this machine for the groups of a program.

Groups on GPUs get the GPUs with the most free memory. Two groups share a GPU only if there are too few;
their processes do not preallocate memory, so this works while both fit. The nodes of one job share none:
NCCL refuses that, and the group gets as many for each of them. A group whose devices the placement lists
keeps them.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import subprocess
from collections.abc import Mapping, Sequence

from launchers.placement import Resources

# Of a kind of accelerator: the modules of which JAX needs one, and the value for make.
_PLUGINS = {
  'gpu': (('jax_cuda12_plugin', 'jax_cuda13_plugin'), 'cuda'),
  'tpu': (('libtpu',), 'tpu'),
}
_QUERY = ('--query-gpu=index,memory.free', '--format=csv,noheader,nounits')
_QUERY_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class GPU:
  """A GPU of this machine.

  Attributes:
    index: its number in the order of the PCI bus, as nvidia-smi prints it.
    free_mib: memory that no process uses, in MiB.
  """

  index: int
  free_mib: int


def assigned(placement: Mapping[str, Resources], sizes: Mapping[str, int]) -> dict[str, Resources]:
  """Returns the placement with devices for every group on GPUs.

  CUDA_VISIBLE_DEVICES, if the user has set it to numbers, limits the choice. If it holds other names,
  such as UUIDs, nothing is chosen, and every such group sees them all.

  Args:
    placement: resources of each group.
    sizes: number of nodes of each group.

  Raises:
    ValueError: if a plug-in of JAX or the driver of the GPUs is missing, a group needs more GPUs than
      there are, or the nodes of a job cannot have equal shares; one sentence.
  """
  for kind in {r.accelerator_kind for r in placement.values() if r.accelerator_kind}:
    _check_plugin(kind)
  jobs = {k: sizes[k] for k, r in placement.items() if r.accelerator and r.one_job}
  for label, size in jobs.items():
    if len(placement[label].devices) % size:
      raise ValueError(
        f'group {label!r} lists {len(placement[label].devices)} devices, which do not divide over its '
        f'{size} nodes; list a multiple in --placement, or change --num_replicas.'
      )
  undecided = {k: r for k, r in placement.items() if r.accelerator_kind == 'gpu' and not r.devices}
  if not undecided:
    return dict(placement)
  allowed = os.environ.get('CUDA_VISIBLE_DEVICES')
  if allowed is not None and not all(name.strip().isdigit() for name in allowed.split(',') if name):
    if several := [label for label in undecided if jobs.get(label, 1) > 1]:
      raise ValueError(
        f'the GPUs of CUDA_VISIBLE_DEVICES={allowed} cannot be divided over the nodes of group '
        f'{several[0]!r}; name them by their numbers.'
      )
    return dict(placement)
  gpus = _found()
  if allowed is not None:
    gpus = [gpu for gpu in gpus if str(gpu.index) in [name.strip() for name in allowed.split(',')]]
  taken = {i for r in placement.values() if r.accelerator_kind == 'gpu' for i in r.devices}
  result = dict(placement)
  for label, resources in undecided.items():
    devices = _choice(label, resources.device_count, jobs.get(label, 1), gpus, taken)
    taken |= set(devices)
    result[label] = dataclasses.replace(resources, devices=devices, num_devices=len(devices))
  return result


def describe(placement: Mapping[str, Resources]) -> str:
  """Returns the GPUs of each group as one line; '' if no group has listed GPUs."""
  groups = {k: r.devices for k, r in placement.items() if r.accelerator_kind == 'gpu' and r.devices}
  return ', '.join(
    f'{label}: GPU {",".join(map(str, devices))}' for label, devices in groups.items()
  )


def _choice(
  label: str, each: int, nodes: int, gpus: Sequence[GPU], taken: set[int]
) -> tuple[int, ...]:
  number = each * nodes
  if number > len(gpus):
    of_nodes = f', {each} for each of its {nodes} nodes' if nodes > 1 else ''
    fewer = '--num_replicas or ' if nodes > 1 else ''
    raise ValueError(
      f"group {label!r} needs {number} of this machine's GPUs{of_nodes}, but only {len(gpus)} are "
      f'available; lower {fewer}the numbers in --actor_devices and --learner_devices (or '
      '--num_devices), or see CUDA_VISIBLE_DEVICES.'
    )
  best_first = sorted(gpus, key=lambda gpu: (gpu.index in taken, -gpu.free_mib, gpu.index))
  return tuple(sorted(gpu.index for gpu in best_first[:number]))


def _check_plugin(kind: str) -> None:
  modules, value = _PLUGINS[kind]
  if kind == 'tpu' and 'TPU_LIBRARY_PATH' in os.environ:
    return
  if not any(map(importlib.util.find_spec, modules)):
    raise ValueError(
      f'--accelerator={kind} needs {modules[0]} for JAX, which is not installed; run '
      f'`make train ACCELERATOR={value}` once.'
    )


def _found() -> list[GPU]:
  """Returns the GPUs that the driver lists.

  Raises:
    ValueError: if it lists none; one sentence.
  """
  try:
    done = subprocess.run(
      ['nvidia-smi', *_QUERY],
      capture_output=True,
      text=True,
      errors='replace',
      timeout=_QUERY_SECONDS,
    )
    problem = done.stdout.strip() or done.stderr.strip() if done.returncode else ''
    lines = [] if problem else done.stdout.splitlines()
  except FileNotFoundError:
    problem, lines = "nvidia-smi of NVIDIA's driver is not on the PATH", []
  except subprocess.TimeoutExpired:
    problem, lines = f'nvidia-smi has not replied for {_QUERY_SECONDS:g} seconds', []
  gpus = []
  for line in lines:
    index, _, free = line.partition(',')
    if index.strip().isdigit() and free.strip().isdigit():
      gpus.append(GPU(int(index), int(free)))
  if not gpus:
    raise ValueError(
      f'--accelerator=gpu finds no GPU ({" ".join(problem.split()) or "the driver lists none"}); repair '
      'the driver, list devices in --placement, or leave --accelerator out.'
    )
  return gpus
