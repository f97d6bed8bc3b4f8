"""Plans a Slurm job: the hosts to request, and the host of each node. Starts nothing.

A job has one component per kind of host that the groups need. Accelerator components come first; there
each node has a host to itself. The other nodes share CPU hosts. The launcher and the groups placed with
it run on the first host of the first component.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from environments import entry
from launchers.placement import Resources
from rundir import one_line

if TYPE_CHECKING:
  from launchers.slurm.engine import Slurm

# Announces the time limit to the launcher in the job, early enough for a last checkpoint. Slurm may send
# it up to a minute earlier.
LIMIT_SIGNAL = '--signal=B:USR1@120'
# Slurm's MaxStepCount, unless the site has changed it. Each start of a node is a step.
_MOST_STEPS = 40_000


@dataclasses.dataclass(frozen=True)
class Component:
  """Hosts of the same kind.

  Attributes:
    hosts: number of hosts.
    cpus: cores per host.
    memory_mb: memory per host, in units of 2**20 bytes; 0 for no reservation.
    gres: accelerators per host, as in 'gpu:4'; empty for none.
    constraint: features that each host must have; empty for none.
  """

  hosts: int
  cpus: int
  memory_mb: int
  gres: str
  constraint: str


@dataclasses.dataclass(frozen=True)
class Slot:
  """The host of a node: the component, and the index of the host in it."""

  component: int
  host: int


@dataclasses.dataclass(frozen=True)
class Plan:
  """The components of a job, and the slot of each node of each group."""

  components: tuple[Component, ...]
  slots: Mapping[str, list[Slot]]


def check(placement: Mapping[str, Resources]) -> None:
  """Raises a one-sentence ValueError if a Slurm job cannot satisfy the resources of a group."""
  for label, resources in placement.items():
    if resources.resources:
      raise ValueError(
        f'group {label!r} asks for {", ".join(resources.resources)} among its resources, which this '
        'launcher cannot pass on; ask sbatch for it with --slurm_cpu_options or '
        '--slurm_accelerator_options, as in --gres=NAME:COUNT.'
      )
    if resources.with_launcher and (resources.accelerator or resources.labels):
      raise ValueError(
        f'group {label!r} runs beside the launcher, whose host it cannot choose; take its '
        'accelerator and labels away, or with_launcher, with --placement.'
      )


def plan(counts: Mapping[str, int], placement: Mapping[str, Resources], options: Slurm) -> Plan:
  """Returns the hosts to request and the slot of each node.

  Args:
    counts: number of nodes of each group.
    placement: resources of each group.
    options: the user's options.

  Raises:
    ValueError: see `check`; also for more nodes than a job has steps.
  """
  check(placement)
  if sum(counts.values()) >= _MOST_STEPS:
    largest = max(counts, key=lambda label: counts[label])
    raise ValueError(
      f'a Slurm job has at most {_MOST_STEPS:,} steps, one for each node and one for each restart, and '
      f'the program has {sum(counts.values()):,} nodes; ask for fewer of group {largest!r}, as with '
      '--num_actors, with more environments in each (--envs_per_actor).'
    )
  beside = [label for label in counts if placement[label].with_launcher]
  pools: dict[tuple[str, str], list[str]] = {}
  for label, count in counts.items():
    if label not in beside:
      resources = placement[label]
      kind = resources.accelerator_kind
      gres = f'{kind}:{resources.device_count}' if kind else ''
      pool = pools.setdefault((gres, '&'.join(resources.labels.values())), [])
      pool += [label] * count
  components: list[Component] = []
  slots: dict[str, list[Slot]] = {label: [] for label in counts}
  for (gres, constraint), pool in sorted((pools or {('', ''): []}).items(), key=_cpu_last):
    hosts = len(pool) if gres else max(1, min(len(pool), options.cpu_nodes))
    cpus, memory = [0.0] * hosts, [0.0] * hosts
    guests = [] if components else [label for label in beside for _ in range(counts[label])]
    for number, label in enumerate([*guests, *pool], -len(guests)):
      if number < 0:
        host = 0
      else:
        host = number if gres else cpus.index(min(cpus))
      slots[label].append(Slot(len(components), host))
      cpus[host] += placement[label].cpus
      memory[host] += placement[label].memory_gb
    cores, megabytes = max(1, math.ceil(max(cpus))), math.ceil(max(memory) * 1024)
    components.append(Component(hosts, cores, megabytes, gres, constraint))
  return Plan(tuple(components), slots)


def _cpu_last(item: tuple[tuple[str, str], list[str]]) -> bool:
  (gres, _), _ = item
  return not gres


def script(
  job: Plan, options: Slurm, name: str, run_dir: str, python: str, python_path: str
) -> str:
  """Returns the batch script.

  Args:
    job: the hosts to request.
    options: the user's options.
    name: name of the job.
    run_dir: the run directory, with the job file and the job's output.
    python: the interpreter.
    python_path: PYTHONPATH from which `launchers` can be imported.

  Raises:
    ValueError: if an option is invalid or for no host of the job, or the name or the directory does not
      fit in an #SBATCH line; one sentence.
  """
  one_line.check('--run_dir=', run_dir)
  if '\\' in run_dir:
    raise ValueError(
      f'--run_dir={run_dir} has a backslash, which Slurm leaves out of file names; choose another.'
    )
  one_line.check('the name of the program, ', name)
  kinds = {bool(component.gres) for component in job.components}
  for flag, text, gres in (
    ('--slurm_accelerator_options', options.accelerator_options, True),
    ('--slurm_cpu_options', options.cpu_options, False),
  ):
    if text and gres not in kinds:
      raise ValueError(
        f'{flag}={text!r} is for hosts of another kind than this job has; use --slurm_options.'
      )
  log = f'{run_dir}/slurm.log'.replace('%', '%%')
  lines = ['#!/bin/sh', _line(f'--job-name={name}', f'--output={log}', '--open-mode=append')]
  for number, component in enumerate(job.components):
    request = [f'--nodes={component.hosts}', '--ntasks-per-node=1']
    request += [f'--cpus-per-task={component.cpus}']
    request += ['--requeue'] if options.requeue else ['--no-requeue']
    request += [LIMIT_SIGNAL] if options.requeue and not number else []
    if component.memory_mb:
      request.append(f'--mem={component.memory_mb}M')
    if component.gres:
      request.append(f'--gres={component.gres}')
    if component.constraint:
      request.append(f'--constraint={component.constraint}')
    lines += ['#SBATCH hetjob'] if number else []
    lines += [_line(*request), *_user_line('--slurm_options', options.options)]
    if component.gres:
      lines += _user_line('--slurm_accelerator_options', options.accelerator_options)
    else:
      lines += _user_line('--slurm_cpu_options', options.cpu_options)
  command = shlex.join(entry.command(python, 'launchers.slurm.allocation', run_dir))
  # The launcher replaces the shell, so that it receives the signals to the batch script.
  lines += ['', f'export PYTHONPATH={shlex.quote(python_path)}', f'exec {command}', '']
  return '\n'.join(lines)


def _line(*words: str) -> str:
  return f'#SBATCH {" ".join(map(shlex.quote, words))}'


def _user_line(flag: str, text: str) -> list[str]:
  """Returns the line for the user's options of a flag; empty without options."""
  one_line.check(f'{flag}=', text)
  try:
    words = shlex.split(text)
  except ValueError as error:
    raise ValueError(f'{flag}={text!r} cannot be read: {error}.') from None
  if words and not words[0].startswith('-'):
    raise ValueError(f'{flag}={text!r} must be options of sbatch, as in "--time=60 --account=me".')
  if '--requeue' in words:
    raise ValueError(
      f'{flag}={text!r} has --requeue, after which the run would begin again; use --slurm_requeue.'
    )
  return [_line(*words)] if words else []
