"""Converts a graph into a Kubernetes JobSet with one indexed Job per group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from launchers import one_node
from launchers.k8s import container
from launchers.k8s.container import Group, Run
from launchers.placement import Resources
from rundir.errors import NonRetryableError

JOBSET_LABEL = 'jobset.sigs.k8s.io/jobset-name'
JOB_LABEL = 'jobset.sigs.k8s.io/replicatedjob-name'
LONGEST_NAME = 63
# Of Kubernetes: a Job that its podFailurePolicy has failed; a pod that the cluster has ended.
_BY_POLICY, _EVICTED = 'PodFailurePolicy', 'DisruptionTarget'
# Of Kueue, which suspends a JobSet with a queue until the cluster has room for all of its pods.
_QUEUE_LABEL = 'kueue.x-k8s.io/queue-name'
_PRIORITY_LABEL = 'kueue.x-k8s.io/priority-class'


def hosts(name: str) -> str:
  """Returns the host name pattern of a JobSet's pods, with {job} and {index}."""
  return f'{name}-{{job}}-0-{{index}}.{name}'


def pod_name(name: str, job: str, index: int) -> str:
  """Returns the name of a pod, as an example: Kubernetes ends it with five random characters."""
  return f'{name}-{job}-0-{index}-12345'


def ending_group(groups: Sequence[Group]) -> str | None:
  """Returns the group that ends the program; see `one_node.ending_group`."""
  return one_node.ending_group(
    {group.label: group.size for group in groups},
    {group.label: group.resources for group in groups},
  )


def check_names(run: Run, groups: Sequence[Group]) -> None:
  """Checks that Kubernetes accepts the names of all pods.

  Raises:
    ValueError: one sentence that names the flag or the group.
  """
  if not re.fullmatch(r'[a-z]([-a-z0-9]*[a-z0-9])?', run.name):
    raise ValueError(
      f'--k8s_name={run.name} must be lower-case letters, digits and hyphens, and begin with a letter.'
    )
  one_node.check_host_names(group.label for group in groups)
  for group in groups:
    job = one_node.host_name(group.label)
    longest = pod_name(run.name, job, group.size - 1)
    if len(longest) > LONGEST_NAME:
      raise ValueError(
        f'--k8s_name={run.name} makes pod names of {len(longest)} characters for group '
        f'{group.label!r}, of at most {LONGEST_NAME}; shorten it by {len(longest) - LONGEST_NAME}.'
      )


def manifest(run: Run, groups: Sequence[Group]) -> dict[str, Any]:
  """Returns the JobSet.

  Raises:
    ValueError: if a group cannot be placed, or Kubernetes rejects a name; one sentence.
  """
  check_names(run, groups)
  ending = ending_group(groups)
  user = run.user
  if user is None:
    user = 0 if any(g.resources.accelerator_kind == 'tpu' for g in groups) else container.USER
  spec: dict[str, Any] = {
    'network': {
      'enableDNSHostnames': True,
      'subdomain': run.name,
      'publishNotReadyAddresses': True,
    },
    'successPolicy': {'operator': 'All'},
    'failurePolicy': _failure_policy(groups),
    'replicatedJobs': [_replicated_job(run, group, user) for group in groups],
  }
  if ending is not None:
    spec['successPolicy']['targetReplicatedJobs'] = [one_node.host_name(ending)]
  labels = {_QUEUE_LABEL: run.queue, _PRIORITY_LABEL: run.priority}
  labels = {label: value for label, value in labels.items() if value}
  return {
    'apiVersion': 'jobset.x-k8s.io/v1alpha2',
    'kind': 'JobSet',
    'metadata': {'name': run.name, **({'labels': labels} if labels else {})},
    'spec': spec,
  }


def follow_command(run: Run, groups: Sequence[Group]) -> str:
  """Returns the command that follows the log of the pod that ends the program."""
  ending = ending_group(groups)
  selector = f'{JOBSET_LABEL}={run.name}'
  if ending is not None:
    selector += f',{JOB_LABEL}={one_node.host_name(ending)}'
  return f'kubectl logs --follow --tail=-1 --selector={selector}'


def _replicated_job(run: Run, group: Group, user: int) -> dict[str, Any]:
  resources = group.resources
  metadata: dict[str, Any] = {}
  if container.shares_slice(group):  # A slice of several machines is a node pool of GKE.
    key = 'alpha.jobset.sigs.k8s.io/exclusive-topology'
    metadata = {'metadata': {'annotations': {key: 'cloud.google.com/gke-nodepool'}}}
  job = {
    'completionMode': 'Indexed',
    'parallelism': group.size,
    'completions': group.size,
    **_restarts(resources),
    'template': {'spec': container.spec(run, group, user)},
  }
  return {
    'name': one_node.host_name(group.label),
    'replicas': 1,
    'template': {**metadata, 'spec': job},
  }


def _failure_policy(groups: Sequence[Group]) -> dict[str, Any]:
  """Returns what the failure of a Job leads to: a Job fails once a node of it has no restart left.

  The nodes of a multi-process job cannot be replaced one by one, so the failure of one fails its Job.
  All Jobs are then created anew. To create only the failed one, JobSet needs version 0.12 and a feature
  gate that is off by default.
  """
  together = [group for group in groups if _restarts_together(group.resources)]
  if not together:
    return {'maxRestarts': 0}
  jobs = {'targetReplicatedJobs': [one_node.host_name(group.label) for group in together]}
  by_policy = {'onJobFailureReasons': [_BY_POLICY]}
  evicted = {**by_policy, 'onJobFailureMessagePatterns': [f'.*{_EVICTED}.*']}
  restart = 'RestartJobSet'
  return {
    'maxRestarts': max(group.resources.max_restarts for group in together),
    # The first that matches counts; without a match the JobSet would restart.
    'rules': [
      {'name': 'evicted', 'action': f'{restart}AndIgnoreMaxRestarts', **jobs, **evicted},
      {'name': 'hopeless', 'action': 'FailJobSet', **by_policy},  # A restart cannot fix it.
      {'name': 'failed', 'action': restart, **jobs},
      {'name': 'others', 'action': 'FailJobSet'},
    ],
  }


def _restarts_together(resources: Resources) -> bool:
  return resources.one_job and resources.restart == 'on_failure'


def _restarts(resources: Resources) -> dict[str, Any]:
  """Returns the restart policy of a Job: how often it replaces a failed pod before the Job fails."""
  if resources.restart == 'never':
    return {'backoffLimit': 0}
  hopeless = {'operator': 'In', 'values': [NonRetryableError.exit_code]}
  evicted = {'type': _EVICTED, 'status': 'True'}
  together = _restarts_together(resources)
  if together:
    limits = {'backoffLimit': 0}
  else:
    limits = {'backoffLimitPerIndex': resources.max_restarts, 'maxFailedIndexes': 0}
  return {
    **limits,
    'podFailurePolicy': {
      'rules': [
        {'action': 'FailJob', 'onExitCodes': hopeless},  # A restart cannot fix it.
        {'action': 'FailJob' if together else 'Ignore', 'onPodConditions': [evicted]},
      ]
    },
  }
