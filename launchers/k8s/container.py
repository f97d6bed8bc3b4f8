"""The pod spec of a node on Kubernetes: container, security context, volumes and node selector."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from typing import Any

from launchers import certificate, one_node
from launchers.k8s import liveness, pod
from launchers.placement import TPU_TYPES, Resources, environment_variables
from nodes.runtime.lifecycle import RUN_VARIABLE

GKE_TPUS = {
  'tpu-v4': 'tpu-v4-podslice',
  'tpu-v5e': 'tpu-v5-lite-podslice',
  'tpu-v5p': 'tpu-v5p-slice',
  'tpu-v6e': 'tpu-v6e-slice',
  'tpu7x': 'tpu7x',
}
# The labels of GKE's machines by `Resources.provisioning`, and the taints that keep other pods off them.
# Machines for ProvisioningRequests, such as those of Kueue, have the last of these.
_PROVISIONING_LABELS = {
  'spot': 'cloud.google.com/gke-spot',
  'flex_start': 'cloud.google.com/gke-flex-start',
}
_PROVISIONING_TAINTS = {
  'spot': ('cloud.google.com/gke-spot',),
  'flex_start': ('cloud.google.com/gke-flex-start', 'cloud.google.com/gke-queued'),
}
# Default user and group of pods that do not run as root.
USER = 1000
_SCRATCH = '/tmp'
# In memory, so that a full disk stops no heartbeat.
_HEARTBEAT = '/heartbeat'
_CERTIFICATE = '/certificate/run.pem'


@dataclasses.dataclass(frozen=True)
class Group:
  """A group of the graph.

  Attributes:
    label: its name in the graph.
    size: number of nodes.
    resources: resources of each node.
    ports: ports that the nodes listen on.
  """

  label: str
  size: int
  resources: Resources
  ports: Sequence[int] = ()


@dataclasses.dataclass(frozen=True)
class Run:
  """Settings shared by all pods of a run.

  Attributes:
    name: name of the JobSet.
    image: container image.
    command: command of each pod; the flags of its group are appended.
    volume: name of the PersistentVolumeClaim for run directories; empty for none.
    token: hexadecimal token in every pod's environment, by which nodes recognise their own run.
    pem: the key and the certificate of the run, which the pods get in a Secret.
    user: user and group id of all pods, 0 for root; None: `USER`, or root if a group has a TPU, whose
      device files belong to root.
    egress: destinations that pods may connect to besides each other; see `launchers.k8s.network`.
    node_timeout: --node_timeout, in seconds; infinite: nothing detects that a node hangs.
    queue: name of the LocalQueue of Kueue in which the run waits; empty for none.
    priority: name of the WorkloadPriorityClass of the run in that queue; empty for the default.
  """

  name: str
  image: str
  command: Sequence[str]
  volume: str = ''
  token: str = ''
  pem: str = ''
  user: int | None = None
  egress: Sequence[str] = ()
  node_timeout: float = math.inf
  queue: str = ''
  priority: str = ''


def shares_slice(group: Group) -> bool:
  """Returns whether the nodes of a group are the hosts of one TPU slice."""
  return bool(group.resources.topology) and group.resources.one_job and group.size > 1


def chips_per_host(group: Group) -> int:
  """Returns the chips per node of a TPU group; a node uses all chips of its machine.

  Raises:
    ValueError: if the topology does not fit the nodes; one sentence that names the group.
  """
  where, resources = f'group {group.label!r}', group.resources
  if resources.accelerator not in TPU_TYPES or not resources.topology:
    raise ValueError(
      f'{where} needs a TPU, but GKE needs its type: with --placement, set accelerator, one of '
      f'{", ".join(TPU_TYPES)}, and topology, as in 2x4.'
    )
  sides = [int(side) for side in resources.topology.split('x')]
  kind = TPU_TYPES[resources.accelerator]
  hosts = group.size if shares_slice(group) else 1
  chips, rest = divmod(math.prod(sides), hosts)
  if len(sides) != kind.dimensions:
    raise ValueError(
      f'{where}: a topology of {resources.accelerator} has {kind.dimensions} sides, unlike '
      f'{resources.topology}.'
    )
  if rest or chips not in kind.chips_per_host:
    allowed = ' or '.join(map(str, kind.chips_per_host))
    makes = 'make up a slice' if hosts > 1 else 'has a slice for itself'
    raise ValueError(
      f'{where}: topology {resources.topology} has {math.prod(sides)} chips, but {hosts} node(s) '
      f'with {allowed} {resources.accelerator} chips each {makes}; choose another topology.'
    )
  devices = chips * kind.devices_per_chip
  if resources.device_count > devices:
    raise ValueError(
      f'{where} needs {resources.device_count} devices in each node, but topology '
      f'{resources.topology} has {devices}; choose a larger one.'
    )
  return chips


def _literal(text: str) -> str:
  """Escapes a text for Kubernetes, which replaces $(NAME) by variables and $$ by $."""
  return text.replace('$', '$$')


def _pod_security(user: int) -> dict[str, Any]:
  # All pods of a run have the same user, because they write to the same run directory.
  security: dict[str, Any] = {
    'runAsUser': user,
    'runAsGroup': user,
    'seccompProfile': {'type': 'RuntimeDefault'},
  }
  if user:
    # Kubernetes gives the volume to this group when it mounts it.
    security |= {'runAsNonRoot': True, 'fsGroup': user, 'fsGroupChangePolicy': 'OnRootMismatch'}
  return security


def secret(run: Run) -> dict[str, Any]:
  """Returns the Secret with the certificate of a run, which all of its pods have."""
  return {
    'apiVersion': 'v1',
    'kind': 'Secret',
    'metadata': {'name': run.name},
    'type': 'Opaque',
    'stringData': {os.path.basename(_CERTIFICATE): run.pem},
  }


def _volumes(run: Run, group: Group) -> dict[str, dict[str, Any]]:
  """Returns the volumes of a pod, {path: volume}."""
  result: dict[str, dict[str, Any]] = {}
  if one_node.has_run_dir(group.resources):
    if run.volume:
      result[one_node.RUNS] = {'name': 'runs', 'persistentVolumeClaim': {'claimName': run.volume}}
    else:
      result[one_node.RUNS] = {'name': 'runs', 'emptyDir': {}}
  memory = {'medium': 'Memory', 'sizeLimit': '1Mi'}
  # The group of `_pod_security` may read it too, which Kubernetes adds to the mode.
  pem = {'secretName': run.name, 'defaultMode': 0o400}
  return {
    **result,
    _SCRATCH: {'name': 'scratch', 'emptyDir': {}},
    _HEARTBEAT: {'name': 'heartbeat', 'emptyDir': memory},
    os.path.dirname(_CERTIFICATE): {'name': 'certificate', 'secret': pem},
  }


def spec(run: Run, group: Group, user: int) -> dict[str, Any]:
  """Returns the spec of a group's pods.

  Args:
    run: the run of the pods.
    group: the group of the pods.
    user: user and group id of the pods; 0 for root.

  Raises:
    ValueError: if the group cannot be placed; one sentence.
  """
  resources = group.resources
  command = [*run.command, f'--pod_group={group.label}']
  if resources.with_launcher:
    command.append('--pod_ends_program')
  # The container sees only its own devices.
  variables = environment_variables(dataclasses.replace(resources, devices=()))
  variables = {'PYTHONUNBUFFERED': '1', 'HOME': _SCRATCH, **variables, RUN_VARIABLE: run.token}
  variables[liveness.VARIABLE] = f'{_HEARTBEAT}/node'
  variables[certificate.VARIABLE] = _CERTIFICATE
  volumes = _volumes(run, group)
  container: dict[str, Any] = {
    'name': 'node',
    'image': run.image,
    'command': [_literal(word) for word in command],
    'env': [{'name': name, 'value': _literal(value)} for name, value in variables.items()]
    + pod.restart_variables(),
    **liveness.probes(run.node_timeout),
    'resources': _amounts(group),
    'volumeMounts': [{'name': v['name'], 'mountPath': path} for path, v in volumes.items()],
    'securityContext': {
      'allowPrivilegeEscalation': False,
      'capabilities': {'drop': ['ALL']},
      'readOnlyRootFilesystem': True,
    },
  }
  result: dict[str, Any] = {
    'restartPolicy': 'Never',
    'terminationGracePeriodSeconds': pod.TERMINATION_SECONDS,
    'automountServiceAccountToken': False,
    'enableServiceLinks': False,
    'securityContext': _pod_security(user),
  }
  selector = dict(resources.labels)
  if resources.accelerator_kind == 'tpu':
    assert resources.accelerator is not None
    selector['cloud.google.com/gke-tpu-accelerator'] = GKE_TPUS[resources.accelerator]
    selector['cloud.google.com/gke-tpu-topology'] = resources.topology
  if label := _PROVISIONING_LABELS.get(resources.provisioning):
    selector[label] = 'true'
    taint = {'operator': 'Equal', 'value': 'true', 'effect': 'NoSchedule'}
    result['tolerations'] = [
      {'key': key, **taint} for key in _PROVISIONING_TAINTS[resources.provisioning]
    ]
  if selector:
    result['nodeSelector'] = selector
  if resources.priority_class:
    result['priorityClassName'] = resources.priority_class
  return {**result, 'containers': [container], 'volumes': list(volumes.values())}


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
