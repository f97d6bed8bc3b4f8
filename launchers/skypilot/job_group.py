"""Converts a graph into a job group of SkyPilot: one task per group, one machine per node."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp

from launchers import one_node
from launchers.placement import Resources, environment_variables
from launchers.skypilot import task
from nodes.runtime.lifecycle import RUN_VARIABLE

# In the image, where SkyPilot puts another Python of its own first in PATH.
PYTHON = '/usr/local/bin/python'
_DIRECTORY = '/launchpod'
_VARIABLE = re.compile(r'[A-Za-z_][A-Za-z0-9_]*')


@dataclasses.dataclass(frozen=True)
class Run:
  """Settings shared by all tasks of a run.

  Attributes:
    name: name of the job group.
    image: container image.
    command: command of each process; the flags of its group are appended.
    infra: cloud, region and zone, as in 'gcp/us-central1'; empty for any.
    volume: name of SkyPilot's volume for run directories; empty for none.
    token: hexadecimal token, by which nodes recognise their own run.
    secret: key and certificate of the run; see `task.secret`.
    port: see `task.Place`.
  """

  name: str
  image: str
  command: Sequence[str]
  infra: str = ''
  volume: str = ''
  token: str = ''
  secret: str = ''
  port: int = one_node.FIRST_PORT


def hosts(name: str) -> str:
  """Returns the host name pattern of a job group's machines, with {job} and {index}."""
  return f'{{job}}-{{index}}.{name}'


def documents(
  program: lp.Program, placement: Mapping[str, Resources], run: Run
) -> list[dict[str, Any]]:
  """Returns the header of the job group, and its tasks.

  Args:
    program: the graph.
    placement: resources of each group.
    run: settings shared by all tasks.

  Raises:
    ValueError: if a group cannot be placed, or SkyPilot rejects a name; one sentence.
  """
  if not re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', run.name):
    raise ValueError(
      f'--sky_name={run.name} must be lower-case letters, digits and hyphens, and begin with a letter.'
    )
  one_node.check_host_names(program.groups)
  sizes = {label: len(nodes) for label, nodes in program.groups.items()}
  ending = one_node.ending_group(sizes, placement)
  if ending is None:
    raise ValueError(
      'under SkyPilot the end of one node is that of the program; place its group with_launcher, with '
      '--placement.'
    )
  header = {
    'name': run.name,
    'execution': 'parallel',
    'primary_tasks': [one_node.host_name(ending)],
  }
  tasks = [_task(run, label, size, placement[label], ending) for label, size in sizes.items()]
  return [header, *tasks]


def _task(run: Run, label: str, size: int, resources: Resources, ending: str) -> dict[str, Any]:
  # The nodes of one job restart together or not at all, and are on machines that do not know each other.
  restarted = resources.restart == 'on_failure' and not resources.one_job
  restarts = resources.max_restarts if restarted else 0
  words = [*run.command, f'--task_group={label}', f'--task_ending={ending}']
  words += [f'--task_hosts={hosts(run.name)}', f'--task_port={run.port}']
  words += [f'--task_restarts={restarts}']
  # The machine has no devices but those that the group asks for.
  variables = environment_variables(dataclasses.replace(resources, devices=()))
  variables = {'PYTHONUNBUFFERED': '1', **variables, RUN_VARIABLE: run.token}
  for name in variables:
    if not _VARIABLE.fullmatch(name):
      raise ValueError(
        f'group {label!r}: SkyPilot has no environment variable {name!r}, but only such of letters, '
        'digits and _; leave it out.'
      )
  result: dict[str, Any] = {
    'name': one_node.host_name(label),
    'num_nodes': size,
    'resources': _machine(run, label, size, resources),
    'envs': variables,
    'secrets': {task.CERTIFICATE_VARIABLE: run.secret},
  }
  if run.volume and one_node.has_run_dir(resources):
    result['volumes'] = {one_node.RUNS: run.volume}
  return {**result, 'run': f'cd {_DIRECTORY} && exec {shlex.join(words)}\n'}


def _machine(run: Run, label: str, size: int, resources: Resources) -> dict[str, Any]:
  """Returns what a task asks of each of its machines; raises ValueError for what SkyPilot lacks."""
  where = f'group {label!r}'
  unknown = {
    'labels': resources.labels,
    'priority_class': resources.priority_class,
    'topology': resources.topology,
    'provisioning: flex_start': resources.provisioning == 'flex_start',
  }
  for field, value in unknown.items():
    if value:
      raise ValueError(f'{where}: SkyPilot has no {field}; leave it out of --placement.')
  machine: dict[str, Any] = {'infra': run.infra} if run.infra else {}
  machine['image_id'] = f'docker:{run.image}'
  machine['cpus'] = f'{max(1, math.ceil(resources.cpus))}+'
  if resources.memory_gb:
    machine['memory'] = f'{math.ceil(resources.memory_gb)}+'
  if resources.provisioning == 'spot':
    machine['use_spot'] = True
  kind = resources.accelerator_kind
  if kind == 'tpu' and resources.one_job and size > 1:
    raise ValueError(
      f'{where}: its nodes are the hosts of one TPU slice, which is for --launcher=k8s; use one node.'
    )
  if kind and len(resources.resources) != 1:
    raise ValueError(
      f'{where} needs a {kind.upper()}, but SkyPilot needs its name and number: with --placement, set '
      'resources, as in {H100: 8} or {tpu-v6e-8: 1}; sky gpus list shows the names.'
    )
  if resources.resources and not kind:
    raise ValueError(
      f'{where} has resources, which name an accelerator under SkyPilot, but no accelerator; set both.'
    )
  if kind:
    ((name, number),) = resources.resources.items()
    if number != int(number) or (kind == 'gpu' and number < resources.device_count):
      raise ValueError(
        f'{where} needs {resources.device_count} {kind.upper()}(s) in each node, unlike resources '
        f'{{{name}: {number:g}}}.'
      )
    machine['accelerators'] = {name: int(number)}
  return machine
