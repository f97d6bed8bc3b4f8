"""Where the groups of a graph run, and what that means for the environment of their processes."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import string
from collections.abc import Mapping

from rundir import one_line

# For each type of TPU: how many chips one machine with it may have.
CHIPS_PER_HOST = {'tpu-v4': (4,), 'tpu-v5e': (1, 4, 8), 'tpu-v5p': (4,), 'tpu-v6e': (1, 4, 8)}
ACCELERATORS = (None, 'gpu', 'tpu', *CHIPS_PER_HOST)
# Of an environment variable; `env` takes what begins with a hyphen for an option.
_VARIABLE = re.compile(r'[A-Za-z_][A-Za-z0-9_.-]*')
RESTARTS = ('never', 'on_failure')
# For the processes of a run, the launcher's too: gRPC would have a proxy lead to every server, even
# one on the same machine. What downloads something still uses the proxy. The list is of suffixes of
# host names, so it holds every last character; of an empty grpc_proxy, gRPC complains in each log.
NO_PROXY = {'no_grpc_proxy': ','.join(string.ascii_lowercase + string.digits + ':.')}


@dataclasses.dataclass(frozen=True)
class Resources:
  """What every node of a group needs.

  The local launcher heeds `accelerator`, `devices`, `env`, `one_job` and what is said about restarts;
  the rest is for launchers that choose a machine.

  Attributes:
    cpus: cores to set aside; 0 for a node that hardly computes.
    memory_gb: memory to set aside, in units of 2**30 bytes; 0 for no claim.
    accelerator: None for a CPU worker, or 'gpu' or 'tpu', or a type of TPU, as in 'tpu-v5e'.
    topology: of the TPU slice that the nodes of the group make up, as in '2x4'; empty for no claim.
    num_devices: how many accelerators it needs; 0 for as many as `devices` has, at least one.
    devices: which of the host's accelerators the process may see; empty for all of them. Where the
      launcher chooses the devices, only their number counts.
    resources: further things that the machine must have, by the names the cluster gives them.
    labels: labels that the machine must bear.
    with_launcher: whether it must be on the launcher's machine, where the run directory is. On
      Kubernetes, which has no such machine, whether the end of its node is that of the program.
    env: further environment variables.
    restart: 'never', so that a failure of the node ends the program, or 'on_failure', so that the node
      is started again.
    max_restarts: failures in a row after which it is not; a minute without one clears the record.
    restart_backoff: seconds before the first restart; each further one in a row waits twice as long,
      8 at most.
    one_job: whether its nodes are one job of several processes: each in a process of its own with
      accelerators of its own, and none can be started again without the others.
  """

  cpus: float = 1.0
  memory_gb: float = 0.0
  accelerator: str | None = None
  topology: str = ''
  num_devices: int = 0
  devices: tuple[int, ...] = ()
  resources: Mapping[str, float] = dataclasses.field(default_factory=dict)
  labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
  with_launcher: bool = False
  env: Mapping[str, str] = dataclasses.field(default_factory=dict)
  restart: str = 'never'
  max_restarts: int = 20
  restart_backoff: float = 0.5
  one_job: bool = False

  def __post_init__(self) -> None:
    if self.restart not in RESTARTS:
      raise ValueError(f'restart {self.restart!r} is none of {RESTARTS}.')
    if self.one_job and self.restart != 'never':
      raise ValueError(
        f'restart {self.restart} is not possible, since no node of this group can be started again '
        'without the others; leave it out, or run one replica only.'
      )
    if self.accelerator not in ACCELERATORS:
      raise ValueError(f'accelerator {self.accelerator!r} is none of {ACCELERATORS}.')
    for name in ('cpus', 'memory_gb', 'num_devices', 'max_restarts', 'restart_backoff'):
      if not 0 <= getattr(self, name) < math.inf:
        raise ValueError(f'{name} must be a number from 0 on, not {getattr(self, name)}.')
    if self.accelerator is None and (self.num_devices or self.devices):
      raise ValueError('devices need an accelerator; name it, gpu or tpu, or ask for no devices.')
    if self.num_devices and self.devices and self.num_devices != len(self.devices):
      raise ValueError(f'num_devices {self.num_devices} is not the number of devices listed.')
    for name, value in self.env.items():
      if not _VARIABLE.fullmatch(name) or '\0' in value:
        raise ValueError(
          f'env {name!r}: {value!r} is no environment variable; a name has letters, digits, _, . and '
          '-, the first is a letter or _, and a value has no NUL.'
        )
    for text in (*self.labels, *self.labels.values(), *self.resources):
      one_line.check('labels and resources: ', text)
    if self.topology and self.accelerator not in CHIPS_PER_HOST:
      raise ValueError(f'a topology needs an accelerator among {", ".join(CHIPS_PER_HOST)}.')
    if self.topology and not re.fullmatch(r'[1-9]\d*(x[1-9]\d*){1,2}', self.topology):
      raise ValueError(f'topology {self.topology!r} is not like 2x4 or 2x2x1.')

  @property
  def accelerator_kind(self) -> str | None:
    """None, 'gpu' or 'tpu'."""
    return self.accelerator and self.accelerator.partition('-')[0]

  @property
  def device_count(self) -> int:
    """How many accelerators to set aside."""
    if self.accelerator is None:
      return 0
    return self.num_devices or len(self.devices) or 1

  def describe(self) -> str:
    """Returns one phrase for people; what is as by default is left out."""
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
    for extra in (self.resources, self.labels, self.env):
      words += [f'{name}={value}' for name, value in extra.items()]
    if self.restart == 'on_failure':
      words.append(f'restarts: {self.max_restarts}')
    if self.one_job:
      words.append('together one job')
    return ', '.join(words)


def environment_variables(resources: Resources) -> dict[str, str]:
  """Returns the variables that hold a process to its resources.

  A process on a CPU worker sees no accelerator at all. One with an accelerator sees the devices it
  was given and does not allocate their memory ahead. A variable that the user's shell has set to
  tune XLA is kept and added to. The nodes reach each other without a proxy.
  """
  visible = ','.join(map(str, resources.devices))
  variables = {'TF_CPP_MIN_LOG_LEVEL': '3', 'GLOG_minloglevel': '2', 'GRPC_VERBOSITY': 'ERROR'}
  variables |= NO_PROXY
  if resources.accelerator is None:
    variables |= {'JAX_PLATFORMS': 'cpu', 'CUDA_VISIBLE_DEVICES': '', 'TPU_VISIBLE_CHIPS': ''}
  elif resources.accelerator == 'gpu':
    variables |= {'JAX_PLATFORMS': 'cuda,cpu', 'XLA_PYTHON_CLIENT_PREALLOCATE': 'false'}
    if visible:
      variables['CUDA_VISIBLE_DEVICES'] = visible
  else:
    variables |= {'JAX_PLATFORMS': 'tpu,cpu', 'CUDA_VISIBLE_DEVICES': ''}
    if visible:
      variables |= {'TPU_VISIBLE_CHIPS': visible, 'TPU_VISIBLE_DEVICES': visible}
  for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    variables[name] = os.environ.get(name, '1')
  return variables | dict(resources.env)
