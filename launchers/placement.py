"""Where the groups of a graph run, and what that means for the environment of their processes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import launchpad as lp

ACCELERATORS = (None, 'gpu', 'tpu')


@dataclasses.dataclass(frozen=True)
class Resources:
  """What every node of a group needs.

  Attributes:
    cpus: cores.
    accelerator: None for a CPU worker, or 'gpu' or 'tpu'.
    devices: which of the host's accelerators the process may see; empty for all of them.
    env: further environment variables.
  """

  cpus: float = 1.0
  accelerator: str | None = None
  devices: tuple[int, ...] = ()
  env: Mapping[str, str] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    if self.accelerator not in ACCELERATORS:
      raise ValueError(f'accelerator {self.accelerator!r} is none of {ACCELERATORS}.')

  def describe(self) -> str:
    """Returns one phrase for people."""
    if self.accelerator is None:
      return 'CPU worker'
    which = ','.join(map(str, self.devices)) or 'all'
    return f'{self.accelerator.upper()} host, devices: {which}'


def environment_variables(resources: Resources) -> dict[str, str]:
  """Returns the variables that hold a process to its resources.

  A process on a CPU worker sees no accelerator at all. One with an accelerator sees the devices it
  was given and does not allocate their memory ahead. A variable that the user's shell has set to
  tune XLA is kept and added to.
  """
  visible = ','.join(map(str, resources.devices))
  variables = {'TF_CPP_MIN_LOG_LEVEL': '3', 'GLOG_minloglevel': '2', 'GRPC_VERBOSITY': 'ERROR'}
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


def check(program: lp.Program, placement: Mapping[str, Resources]) -> None:
  """Checks that every group of the graph is placed.

  Raises:
    ValueError: one sentence naming the group.
  """
  for label in program.groups:
    if label not in placement:
      raise ValueError(
        f'group {label!r} of program {program.name!r} has no placement; add it to the mapping from '
        f'group to Resources, which has {sorted(placement)}.'
      )
