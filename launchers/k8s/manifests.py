"""Writes the manifests of a run on Kubernetes. Contacts no cluster."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp
import yaml

from environments.interpreters import ROOT
from launchers import one_node
from launchers.k8s import container, jobset, network
from launchers.placement import Resources
from rundir import files

_VALIDATION_NOTE = 'validated against the schemas of JobSet and Kubernetes, not run on a cluster'
# What a name that is made here leaves room for: a group's name of that length, with so many nodes.
_GROUP_CHARACTERS = 20
_NODES = 10_000
_SECRET = 'secret.yaml'
# Of an object. `kubectl apply` keeps the object in an annotation of itself, and etcd holds 1.5 MiB.
_MOST_BYTES = 256 << 10
_MOST_PODS = 100_000  # Of an indexed Job.
_BUILD_ARGUMENTS = {'gpu': 'cuda', 'tpu': 'tpu', None: 'cpu'}


def default_name(program: str, env: str) -> str:
  """Returns a name of the JobSet from the program, the environment and the time.

  The graph does not exist yet, because its nodes store the run directory, which has this name.
  """
  longest = jobset.pod_name('', 'x' * _GROUP_CHARACTERS, _NODES - 1)
  return one_node.default_name(program, env, jobset.LONGEST_NAME - len(longest))


@dataclasses.dataclass(frozen=True)
class Generated:
  """The generated files of a run on Kubernetes.

  Attributes:
    run: settings shared by all pods.
    groups: the groups, as in the manifests.
    manifests: text of each manifest by file name.
  """

  run: container.Run
  groups: Sequence[container.Group]
  manifests: Mapping[str, str]

  def write(self, directory: str) -> None:
    """Writes the files; raises a one-sentence ValueError if they cannot be written."""
    try:
      os.makedirs(directory, exist_ok=True)
      for file, text in self.manifests.items():
        mode = 0o600 if file == _SECRET else 0o666
        with files.replacing(os.path.join(directory, file), mode=mode) as f:
          f.write(text.encode())
    except OSError as error:
      raise ValueError(f'--output={directory} cannot be written: {error.strerror}.') from error

  def instructions(self, directory: str) -> str:
    """Returns instructions for the files in a directory."""
    run, groups = self.run, self.groups
    users = ', '.join(g.label for g in groups if one_node.has_run_dir(g.resources))
    if run.volume:
      kept = (
        f'The run directory is {one_node.run_dir(run.name)} on the volume {run.volume}, which is '
        f'mounted in {users}; unless one machine has them all, it must be ReadWriteMany. Applied again '
        'under the same name, the run resumes from its newest checkpoint.'
      )
    else:
      kept = (
        'The run directory is lost with the pods, parameters and curves with it, and no failed pod of '
        f'{users} is replaced: name a PersistentVolumeClaim with --k8s_volume to keep it.'
      )
    kinds = {_BUILD_ARGUMENTS[g.resources.accelerator_kind] for g in groups}
    queued = f'It starts when the queue {run.queue} of Kueue has room: kubectl get workloads'
    argument = f'ACCELERATOR={" ".join(sorted(kinds - {"cpu"})) or "cpu"}'
    build = ['docker', 'build', '--build-arg', argument, '--tag', run.image, ROOT]
    return '\n'.join(
      [
        f'Wrote {", ".join(self.manifests)} to {directory}; {_VALIDATION_NOTE}.',
        f'{_SECRET} holds the key of the run: keep it from others, and out of version control.',
        kept,
        f'In a cluster with the JobSet controller, once the image is there ({shlex.join(build)}):',
        f'  kubectl apply -f {shlex.quote(directory)}',
        *([queued] if run.queue else []),
        f'  {jobset.follow_command(run, groups)}',
      ]
    )


def generate(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run: container.Run,
  first_port: int,
) -> Generated:
  """Returns the manifests.

  Args:
    program: the graph, built for its run directory.
    placement: resources of each group.
    run: settings shared by all pods; its command builds the same graph.
    first_port: first port; nodes get consecutive ports.

  Raises:
    ValueError: if a flag is invalid or a group cannot be placed; one sentence.
  """
  groups = _groups(program, placement, run, first_port)
  documents = {
    'jobset.yaml': [jobset.manifest(run, groups)],
    'networkpolicy.yaml': network.policies(run, groups),
    _SECRET: [container.secret(run)],
  }
  _check_sizes(documents, groups)
  header = f'# Written by launch.py; {_VALIDATION_NOTE}.\n'
  manifests = {n: header + yaml.safe_dump_all(m, sort_keys=False) for n, m in documents.items()}
  return Generated(run, groups, manifests)


def _check_sizes(
  documents: Mapping[str, Sequence[Mapping[str, Any]]], groups: Sequence[container.Group]
) -> None:
  """Raises ValueError, one sentence, for manifests that Kubernetes rejects as too large."""
  largest = max(groups, key=lambda group: group.size)
  if largest.size > _MOST_PODS:
    raise ValueError(
      f'group {largest.label!r} has {largest.size:,} nodes, and a Job has at most {_MOST_PODS:,} pods; '
      'ask for fewer nodes.'
    )
  ports = [port for group in groups for port in group.ports]
  if ports and max(ports) >= 1 << 16:
    raise ValueError(
      f'the {len(ports):,} ports of the nodes would go on to {max(ports):,}, beyond {(1 << 16) - 1:,}; '
      'lower --k8s_port, or ask for fewer nodes that others connect to.'
    )
  for file, objects in documents.items():
    size = max(len(json.dumps(each)) for each in objects)
    if size > _MOST_BYTES:
      raise ValueError(
        f'{file} would have an object of {size:,} bytes, and kubectl apply takes at most '
        f'{_MOST_BYTES:,}: it lists the {len(ports):,} ports of all nodes that others connect to; ask '
        'for fewer such nodes.'
      )


def _groups(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run: container.Run,
  first_port: int,
) -> list[container.Group]:
  """Returns the groups of the graph."""
  placement = {
    # Without a volume, a replacement pod would have no run directory to resume from.
    label: dataclasses.replace(resources, restart='never')
    if one_node.has_run_dir(resources) and not run.volume
    else resources
    for label, resources in placement.items()
  }
  ports = one_node.ports(program, first_port)
  return [
    container.Group(
      label=label,
      size=len(nodes),
      resources=placement[label],
      ports=[port for index in range(len(nodes)) for port in ports[label, index]],
    )
    for label, nodes in program.groups.items()
  ]
