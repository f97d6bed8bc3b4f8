"""A graph as Kubernetes objects: a JobSet of one indexed Job for each group, and a NetworkPolicy."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from launchers import pod, restart
from launchers.placement import CHIPS_PER_HOST, Resources, environment_variables

GKE_TPUS = {
  'tpu-v4': 'tpu-v4-podslice',
  'tpu-v5e': 'tpu-v5-lite-podslice',
  'tpu-v5p': 'tpu-v5p-slice',
  'tpu-v6e': 'tpu-v6e-slice',
}
RUNS = '/runs'
_JOBSET_LABEL = 'jobset.sigs.k8s.io/jobset-name'
_JOB_LABEL = 'jobset.sigs.k8s.io/replicatedjob-name'
_LONGEST_NAME = 63


@dataclasses.dataclass(frozen=True)
class Group:
  """A group of the graph.

  Attributes:
    label: its name in the graph.
    size: how many nodes it has.
    resources: what each of them needs.
    ports: on which they listen.
    knows_run_dir: whether they are told the run directory, and so may write to it.
  """

  label: str
  size: int
  resources: Resources
  ports: Sequence[int] = ()
  knows_run_dir: bool = False


@dataclasses.dataclass(frozen=True)
class Run:
  """What all pods of a run share.

  Attributes:
    name: of the JobSet.
    image: of the container.
    command: what each pod runs; its group is added to it.
    volume: name of the PersistentVolumeClaim for run directories; empty for none.
  """

  name: str
  image: str
  command: Sequence[str]
  volume: str = ''


def hosts(name: str) -> str:
  """Returns the host names that the pods of a JobSet have, with {job} and {index} to be filled in."""
  return f'{name}-{{job}}-0-{{index}}.{name}'


def ending_group(groups: Sequence[Group]) -> Group | None:
  """Returns the group whose end is the program's; None if all groups have to end.

  Raises:
    ValueError: if more than one node is placed with the launcher.
  """
  found = [group for group in groups if group.resources.with_launcher]
  if sum(group.size for group in found) > 1:
    raise ValueError(
      f'{" and ".join(repr(g.label) for g in found)} are placed with_launcher, but on Kubernetes the '
      'end of one node is the end of the program; leave with_launcher to one node with --placement.'
    )
  return found[0] if found else None


def chips_per_host(group: Group) -> int:
  """Returns how many chips each node of a TPU group has, which are all of its machine.

  Raises:
    ValueError: if the topology is not one for that many nodes; one sentence that names the group.
  """
  where, resources = f'group {group.label!r}', group.resources
  if resources.accelerator not in CHIPS_PER_HOST or not resources.topology:
    raise ValueError(
      f'{where} needs a TPU, but GKE has to know which: with --placement, set accelerator, one of '
      f'{", ".join(CHIPS_PER_HOST)}, and topology, as in 2x4.'
    )
  sides = [int(side) for side in resources.topology.split('x')]
  allowed = CHIPS_PER_HOST[resources.accelerator]
  chips, rest = divmod(math.prod(sides), group.size)
  wanted = 2 if 1 in allowed else 3
  if len(sides) != wanted:
    raise ValueError(
      f'{where}: a topology of {resources.accelerator} has {wanted} sides, unlike {resources.topology}.'
    )
  if rest or chips not in allowed:
    raise ValueError(
      f'{where}: topology {resources.topology} has {math.prod(sides)} chips, but {group.size} node(s) '
      f'with {" or ".join(map(str, allowed))} {resources.accelerator} chips each make up the slice; '
      'choose another topology.'
    )
  if resources.device_count > chips:
    raise ValueError(
      f'{where} needs {resources.device_count} devices in each node, but topology '
      f'{resources.topology} has {chips}; choose a larger one.'
    )
  return chips


def check_names(run: Run, groups: Sequence[Group]) -> None:
  """Checks that Kubernetes takes the names of all pods.

  Raises:
    ValueError: one sentence that names the flag or the group.
  """
  if not re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', run.name):
    raise ValueError(
      f'--k8s_name={run.name} must be lower-case letters, digits and hyphens, and begin with a letter.'
    )
  jobs: dict[str, str] = {}
  for group in groups:
    job = pod.job_name(group.label)
    if not re.fullmatch(r'[a-z0-9]([-a-z0-9]*[a-z0-9])?', job):
      raise ValueError(f'group {group.label!r} cannot be part of a host name; rename it.')
    if jobs.setdefault(job, group.label) != group.label:
      raise ValueError(
        f'groups {jobs[job]!r} and {group.label!r} are both called {job} in host names.'
      )
    longest = (
      f'{run.name}-{job}-0-{group.size - 1}-12345'  # Kubernetes adds five random characters.
    )
    if len(longest) > _LONGEST_NAME:
      raise ValueError(
        f'--k8s_name={run.name} makes pod names of {len(longest)} characters for group '
        f'{group.label!r}, of at most {_LONGEST_NAME}; shorten it by {len(longest) - _LONGEST_NAME}.'
      )


def jobset(run: Run, groups: Sequence[Group]) -> dict[str, Any]:
  """Returns the JobSet.

  Raises:
    ValueError: if a group cannot be placed, or a name is none for Kubernetes; one sentence.
  """
  check_names(run, groups)
  ending = ending_group(groups)
  spec: dict[str, Any] = {
    'network': {
      'enableDNSHostnames': True,
      'subdomain': run.name,
      'publishNotReadyAddresses': True,
    },
    'successPolicy': {'operator': 'All'},
    # A Job fails once a node has no restart left.
    'failurePolicy': {'maxRestarts': 0},
    'replicatedJobs': [_replicated_job(run, group) for group in groups],
  }
  if ending is not None:
    spec['successPolicy']['targetReplicatedJobs'] = [pod.job_name(ending.label)]
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': {'name': run.name},
    'spec': spec,
  }


def network_policy(run: Run, groups: Sequence[Group]) -> dict[str, Any]:
  """Returns the NetworkPolicy that lets the run's own pods, and no others, reach its ports."""
  own = {'matchLabels': {_JOBSET_LABEL: run.name}}
  listed = [{'protocol': 'TCP', 'port': port} for group in groups for port in group.ports]
  # The machines of a TPU slice, and the processes of one job in their collectives, talk to each other
  # on ports of their own choice.
  between_hosts = any(
    group.size > 1 and (group.resources.topology or group.resources.one_job) for group in groups
  )
  rule: dict[str, Any] = {'from': [{'podSelector': own}]}
  if not between_hosts:
    rule['ports'] = listed
  return {
    'apiVersion': 'networking.k8s.io/v1',
    'kind': 'NetworkPolicy',
    'metadata': {'name': run.name},
    'spec': {
      'podSelector': dict(own),
      'policyTypes': ['Ingress'],
      'ingress': [rule] if listed else [],
    },
  }


def follow_command(run: Run, groups: Sequence[Group]) -> str:
  """Returns the command that shows the output of the node whose end is the program's."""
  ending = ending_group(groups)
  selector = f'{_JOBSET_LABEL}={run.name}'
  if ending is not None:
    selector += f',{_JOB_LABEL}={pod.job_name(ending.label)}'
  return f'kubectl logs --follow --tail=-1 --selector={selector}'


def _replicated_job(run: Run, group: Group) -> dict[str, Any]:
  resources = group.resources
  metadata: dict[str, Any] = {}
  if resources.topology and group.size > 1:  # All of its pods in one slice.
    key = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    metadata = {'metadata': {'annotations': {key: 'cloud.google.com/gke-nodepool'}}}
  job = {
    'completionMode': 'Indexed',
    'parallelism': group.size,
    'completions': group.size,
    **_restarts(resources),
    'template': {'spec': _pod(run, group)},
  }
  return {
    'name': pod.job_name(group.label),
    'replicas': 1,
    'template': {**metadata, 'spec': job},
  }


def _restarts(resources: Resources) -> dict[str, Any]:
  """Returns how often a Job replaces a pod that has failed; when it may not, the Job fails."""
  if resources.restart == 'never':
    return {'backoffLimit': 0}
  hopeless = {'operator': 'In', 'values': [restart.HOPELESS]}
  evicted = {'type': 'DisruptionTarget', 'status': 'True'}
  return {
    'backoffLimitPerIndex': resources.max_restarts,
    'maxFailedIndexes': 0,
    'podFailurePolicy': {
      'rules': [
        {'action': 'FailJob', 'onExitCodes': hopeless},  # No restart mends it.
        {'action': 'Ignore', 'onPodConditions': [evicted]},
      ]
    },
  }


def _pod(run: Run, group: Group) -> dict[str, Any]:
  resources = group.resources
  command = [*run.command, f'--pod_group={group.label}']
  if resources.with_launcher:
    command.append('--pod_ends_program')
  # The machine has the devices and no others.
  variables = environment_variables(dataclasses.replace(resources, devices=()))
  container: dict[str, Any] = {
    'name': 'node',
    'image': run.image,
    'command': command,
    'env': [{'name': n, 'value': v} for n, v in {'PYTHONUNBUFFERED': '1', **variables}.items()]
    + pod.life_variables(),
    'resources': _amounts(group),
  }
  spec: dict[str, Any] = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': pod.TERMINATION_SECONDS,
    'automountServiceAccountToken': False,
    'enableServiceLinks': False,
  }
  selector = dict(resources.labels)
  if resources.accelerator_kind == 'tpu':
    assert resources.accelerator is not None
    selector['cloud.google.com/gke-tpu-accelerator'] = GKE_TPUS[resources.accelerator]
    selector['cloud.google.com/gke-tpu-topology'] = resources.topology
  if selector:
    spec['nodeSelector'] = selector
  if run.volume and group.knows_run_dir:
    container['volumeMounts'] = [{'name': 'runs', 'mountPath': RUNS}]
    spec['volumes'] = [{'name': 'runs', 'persistentVolumeClaim': {'claimName': run.volume}}]
  return {**spec, 'containers': [container]}


def _amounts(group: Group) -> dict[str, Any]:
  resources = group.resources
  limits: dict[str, Any] = {name: f'{value:g}' for name, value in resources.resources.items()}
  if resources.accelerator_kind == 'tpu':
    limits['google.com/tpu'] = str(chips_per_host(group))
  elif resources.accelerator_kind == 'gpu':
    limits['nvidia.com/gpu'] = str(resources.device_count)
  requests = dict(limits)
  if resources.cpus:
    requests['cpu'] = f'{resources.cpus:g}'
  if resources.memory_gb:
    requests['memory'] = f'{round(resources.memory_gb * 1024)}Mi'
  return {name: value for name, value in (('requests', requests), ('limits', limits)) if value}
