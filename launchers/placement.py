"""Resources of the groups of a graph, and the environment variables that they imply."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import string
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rundir import one_line, secrets


class TpuType(NamedTuple):
  """A type of TPU.

  Attributes:
    chips_per_host: the numbers of chips that one machine may have.
    dimensions: of a topology, 2 as in 2x4 or 3 as in 2x2x1.
    devices_per_chip: number of JAX devices.
  """

  chips_per_host: Sequence[int]
  dimensions: int
  devices_per_chip: int = 1


TPU_TYPES = {
  'tpu-v4': TpuType((4,), 3),
  'tpu-v5e': TpuType((1, 4, 8), 2),
  'tpu-v5p': TpuType((4,), 3),
  'tpu-v6e': TpuType((1, 4, 8), 2),
  # A chip of two chiplets, each with memory of its own.
  'tpu7x': TpuType((1, 4), 3, devices_per_chip=2),
}
ACCELERATORS = (None, 'gpu', 'tpu', *TPU_TYPES)
# Name of an environment variable. No leading hyphen: `env` would read it as an option.
_VARIABLE = re.compile(r'[A-Za-z_][A-Za-z0-9_.-]*')
RESTARTS = ('never', 'on_failure')
PROVISIONING = ('on_demand', 'spot', 'flex_start')
_PREALLOCATE = 'XLA_PYTHON_CLIENT_PREALLOCATE'
# For all processes of a run, including the launcher: gRPC would use a proxy for every server, even on
# the same machine. Downloads still use the proxy. The list holds suffixes of host names, so it holds
# every possible last character. An empty grpc_proxy would make gRPC complain in each log.
NO_PROXY = {'no_grpc_proxy': ','.join(string.ascii_lowercase + string.digits + ':.')}


@dataclasses.dataclass(frozen=True)
class Resources:
  """Resources and restart policy of every node of a group.

  The local launcher uses `accelerator`, `devices`, `env`, `one_job`, `python` and the restart policy.
  The other fields are for launchers that choose a machine; `uses_run_dir` and `provisioning`
  are for Kubernetes and SkyPilot, `priority_class` is for Kubernetes.

  Attributes:
    cpus: cores to reserve; 0 for a node that hardly computes.
    memory_gb: memory to reserve, in units of 2**30 bytes; 0 for no reservation.
    accelerator: None for a CPU worker, 'gpu', 'tpu', or a type of TPU such as 'tpu-v5e'.
    topology: topology of a TPU slice, such as '2x4'; empty for any. The nodes of `one_job` form one
      slice, each on a host of it; any other node has a slice of one host for itself.
    num_devices: number of accelerators per node; 0 for the length of `devices`, at least one.
    devices: indices of the host's accelerators that the process may see; empty for all of them. If the
      launcher chooses the devices, only their number counts. The nodes of one job, on one host, have
      equal shares of them.
    resources: further resources of the machine, by the cluster's names for them.
    labels: labels that the machine must have.
    provisioning: how its machines are rented: 'on_demand'; 'spot', which the cloud may take back at any
      time; 'flex_start', which the cloud provides when it can, and for a limited time.
    priority_class: name of the PriorityClass of its pods; empty for the default of the cluster.
    with_launcher: whether it must run on the launcher's machine, which has the run directory. On
      Kubernetes, which has no such machine, whether the program ends when its node ends.
    uses_run_dir: False declares that its nodes neither write to the run directory nor read from it.
      On Kubernetes such a group has no volume, and is restarted even if the run directory is not kept.
    env: further environment variables.
    cpu_env: environment variables for nodes without an accelerator; those in `env` override them.
    restart: 'never': a failure of the node ends the program; 'on_failure': the node is restarted, with
      the others of its group if they form one job.
    max_restarts: largest number of restarts in a row; a minute without a failure resets the count.
    restart_backoff: seconds before the first restart; doubles with each restart in a row, up to 8.
    one_job: whether its nodes form one multi-process job. Each then needs a separate process with
      separate accelerators, and all of them restart when one of them fails.
    python: absolute path of the interpreter of its nodes, which has packages of its own; empty for that
      of the launcher. Under Kubernetes all groups have that of the image.
  """

  cpus: float = 1.0
  memory_gb: float = 0.0
  accelerator: str | None = None
  topology: str = ''
  num_devices: int = 0
  devices: tuple[int, ...] = ()
  resources: Mapping[str, float] = dataclasses.field(default_factory=dict)
  labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
  provisioning: str = 'on_demand'
  priority_class: str = ''
  with_launcher: bool = False
  uses_run_dir: bool = True
  env: Mapping[str, str] = dataclasses.field(default_factory=dict)
  cpu_env: Mapping[str, str] = dataclasses.field(default_factory=dict)
  restart: str = 'never'
  max_restarts: int = 20
  restart_backoff: float = 0.5
  one_job: bool = False
  python: str = ''

  def __post_init__(self) -> None:
    if self.restart not in RESTARTS:
      raise ValueError(f'restart {self.restart!r} is none of {RESTARTS}.')
    if self.accelerator not in ACCELERATORS:
      raise ValueError(f'accelerator {self.accelerator!r} is none of {ACCELERATORS}.')
    if self.provisioning not in PROVISIONING:
      raise ValueError(f'provisioning {self.provisioning!r} is none of {PROVISIONING}.')
    for name in ('cpus', 'memory_gb', 'num_devices', 'max_restarts', 'restart_backoff'):
      if not 0 <= getattr(self, name) < math.inf:
        raise ValueError(f'{name} must be a number from 0 on, not {getattr(self, name)}.')
    if self.accelerator is None and (self.num_devices or self.devices):
      raise ValueError('devices need an accelerator; name it, gpu or tpu, or ask for no devices.')
    if self.num_devices and self.devices and self.num_devices != len(self.devices):
      raise ValueError(f'num_devices {self.num_devices} is not the number of devices listed.')
    if len(set(self.devices)) != len(self.devices) or min(self.devices, default=0) < 0:
      raise ValueError(f'devices must be distinct numbers from 0 on, not {[*self.devices]}.')
    for name, value in (*self.env.items(), *self.cpu_env.items()):
      if not _VARIABLE.fullmatch(name) or '\0' in value:
        raise ValueError(
          f'env {name!r}: {value!r} is not an environment variable; a name has letters, digits, _, . '
          'and -, the first is a letter or _, and a value has no NUL.'
        )
    for text in (*self.labels, *self.labels.values(), *self.resources, self.priority_class):
      one_line.check('labels, resources and priority_class: ', text)
    if self.python and not os.path.isabs(self.python):
      raise ValueError(f'python {self.python!r} must be the absolute path of an interpreter.')
    if self.topology and self.accelerator not in TPU_TYPES:
      raise ValueError(f'a topology needs an accelerator among {", ".join(TPU_TYPES)}.')
    if self.topology and not re.fullmatch(r'[1-9]\d*(x[1-9]\d*){1,2}', self.topology):
      raise ValueError(f'topology {self.topology!r} is not like 2x4 or 2x2x1.')

  @property
  def accelerator_kind(self) -> str | None:
    """None, 'gpu' or 'tpu'."""
    return 'tpu' if self.accelerator in TPU_TYPES else self.accelerator

  @property
  def device_count(self) -> int:
    """Number of accelerators to reserve."""
    if self.accelerator is None:
      return 0
    return self.num_devices or len(self.devices) or 1

  def of_node(self, index: int, size: int) -> Resources:
    """Returns the resources of one of the `size` nodes of the group, if all of them are on one host."""
    if not (self.one_job and self.devices):
      return self
    each = len(self.devices) // size
    mine = self.devices[index * each : (index + 1) * each]
    return dataclasses.replace(self, devices=mine, num_devices=each)

  def requests(self) -> list[str]:
    """Returns what a node asks of a cluster, in words, as in ['1 CPU', '4 TPU', 'label pool=a']."""
    amounts = {'CPU': self.cpus, (self.accelerator or '').upper(): self.device_count}
    amounts |= {'GB of memory': self.memory_gb, **self.resources}
    words = [f'{amount:g} {name}' for name, amount in amounts.items() if amount]
    words += [f'topology {self.topology}'] if self.topology else []
    words += [f'label {name}={value}' for name, value in self.labels.items()]
    words += [self.provisioning] if self.provisioning != PROVISIONING[0] else []
    return words + (["the launcher's machine"] if self.with_launcher else [])

  def variables(self) -> dict[str, str]:
    """Returns `env`, with `cpu_env` if there is no accelerator."""
    return {**({} if self.accelerator else self.cpu_env), **self.env}

  def describe(self) -> str:
    """Returns a readable phrase on machine and restarts, without the fields that have their defaults."""
    if self.accelerator is None:
      words = ['CPU worker']
    else:
      number = f'{self.num_devices} of them' if self.num_devices else 'all'
      which = ','.join(map(str, self.devices)) or number
      words = [f'{self.accelerator.upper()} host', f'devices: {which}']
      words += [f'topology: {self.topology}'] if self.topology else []
    if self.with_launcher:
      words.append('with the launcher')
    if self.cpus != 1.0:
      words.append(f'cpus: {self.cpus:g}')
    if self.memory_gb:
      words.append(f'memory: {self.memory_gb:g} GB')
    for extra in (self.resources, self.labels, secrets.masked_options(self.variables())):
      words += [f'{name}={value}' for name, value in extra.items()]
    if self.provisioning != PROVISIONING[0]:
      words.append(self.provisioning)
    if self.priority_class:
      words.append(f'priority: {self.priority_class}')
    if self.python:
      words.append(f'python: {self.python}')
    if self.restart == 'on_failure':
      words.append(f'restarts: {self.max_restarts}')
    if self.one_job:
      words.append('together one job')
    return ', '.join(words)


def shell_warnings(groups: Mapping[str, Resources]) -> list[str]:
  """Returns a sentence if the shell asks JAX for devices that no group of nodes has."""
  given = os.environ.get('JAX_PLATFORMS', '')
  if not set(given.split(',')) - {'', 'cpu'} or any(each.accelerator for each in groups.values()):
    return []
  return [
    f'JAX_PLATFORMS={given} has no effect: nodes compute on the CPU unless --accelerator or --placement '
    'says otherwise.'
  ]


def environment_variables(resources: Resources) -> dict[str, str]:
  """Returns the variables that restrict a process to its resources.

  A process on a CPU worker sees no accelerator. A process with an accelerator sees only its own devices
  and does not preallocate their memory, unless the user's shell has XLA_PYTHON_CLIENT_PREALLOCATE. Other
  XLA variables of the shell are kept too. Nodes connect to each other without a proxy.
  """
  visible = ','.join(map(str, resources.devices))
  variables = {'TF_CPP_MIN_LOG_LEVEL': '3', 'GLOG_minloglevel': '2', 'GRPC_VERBOSITY': 'ERROR'}
  variables |= NO_PROXY
  if resources.accelerator is None:
    variables |= {'JAX_PLATFORMS': 'cpu', 'CUDA_VISIBLE_DEVICES': '', 'TPU_VISIBLE_CHIPS': ''}
  elif resources.accelerator == 'gpu':
    preallocate = os.environ.get(_PREALLOCATE, 'false')
    variables |= {'JAX_PLATFORMS': 'cuda,cpu', _PREALLOCATE: preallocate}
    if visible:
      # CUDA's own order is by speed; that of nvidia-smi is by PCI bus.
      variables |= {'CUDA_VISIBLE_DEVICES': visible, 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}
  else:
    variables |= {'JAX_PLATFORMS': 'tpu,cpu', 'CUDA_VISIBLE_DEVICES': ''}
    if visible:
      variables |= {'TPU_VISIBLE_CHIPS': visible, 'TPU_VISIBLE_DEVICES': visible}
  for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    variables[name] = os.environ.get(name, '1')
  return variables | resources.variables()
