"""Writes what runs a graph on Kubernetes: manifests and a Dockerfile. Talks to no cluster."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence

import launchpad as lp
import yaml
from absl import flags

from launchers import core, describe, k8s_manifest, k8s_network, k8s_pod, pod
from launchers.placement import Resources
from rundir import one_line

OUTPUT = flags.DEFINE_string('output', '', 'directory for the files of --launcher=k8s')
IMAGE = flags.DEFINE_string('image', '', 'container image of the pods of --launcher=k8s')
NAME = flags.DEFINE_string('k8s_name', '', 'of the JobSet; empty: <program>-<env>-<time>')
VOLUME = flags.DEFINE_string(
  'k8s_volume', '', 'PersistentVolumeClaim that keeps the run directory; empty: lost with the pods'
)
PORT = flags.DEFINE_integer(
  'k8s_port',
  8900,
  'the ports of the nodes are counted from here',
  lower_bound=1024,
  upper_bound=60000,
)
USER = flags.DEFINE_integer(
  'k8s_user',
  None,
  'number of the user and group that all pods run as; 0: root; by default '
  f"{k8s_pod.USER}, but root where a group has a TPU, whose device files are root's",
  lower_bound=0,
)
EGRESS = flags.DEFINE_list(
  'k8s_egress',
  [],
  "where the pods may connect to, beside each other and DNS: all, metadata (of Google's machines; pods "
  'with a TPU may anyway), networks such as 10.1.0.0/16, with a port such as 10.1.2.3/32:443',
)
POD_GROUP = flags.DEFINE_string('pod_group', '', 'the group of this pod, as a manifest says it')
POD_HOSTS = flags.DEFINE_string('pod_hosts', '', 'host name of a node, with {job} and {index}')
POD_ENDS_PROGRAM = flags.DEFINE_bool('pod_ends_program', False, "this pod's end is the program's")

_SOURCES = ('agents', 'environments', 'launchers', 'nodes', 'programs', 'rundir')
_HONESTY = 'validated against the schemas of JobSet and Kubernetes, not run on a cluster'


def jobset_name(program: str, env: str) -> str:
  """Returns the name that the flag gives to the run, or one that says what and when."""
  what = [re.sub(r'[^a-z0-9]+', '-', text.lower()) for text in (program[:12], env[:16])]
  return NAME.value or f'{"-".join(t.strip("-") for t in what)}-{time.strftime("%m%d%H%M%S")}'


def run_dir(name: str) -> str:
  """Returns a run's directory in its pods."""
  return f'{k8s_pod.RUNS}/{name}'


def generate(
  program: lp.Program,
  placement: Mapping[str, Resources],
  name: str,
  arguments: Sequence[str],
  dry_run: bool,
  own: Sequence[str] = (),
) -> str:
  """Writes the files and returns what to do with them.

  In a dry run, writes nothing and returns the graph in words and the manifests.

  Args:
    program: the graph, made for `run_dir(name)`.
    placement: resources for each group.
    name: of the JobSet.
    arguments: flags with which launch.py builds the graph anew, but for the run directory.
    dry_run: whether to write nothing.
    own: directories with the user's own files, as they lead from that of launch.py.

  Raises:
    ValueError: one sentence, if a flag is missing or wrong, a group cannot be placed or a directory
      cannot be written.
  """
  if not IMAGE.value.strip():
    raise ValueError('--launcher=k8s needs --image, the container image that the pods will run.')
  one_line.check('--image=', IMAGE.value)
  one_line.check('--output=', OUTPUT.value)
  if not OUTPUT.value and not dry_run:
    raise ValueError('--launcher=k8s needs --output, the directory for the files that it writes.')
  command = ['python', 'launch.py', *arguments, f'--run_dir={run_dir(name)}', '--launcher=pod']
  command += [f'--pod_hosts={k8s_manifest.hosts(name)}', f'--k8s_port={PORT.value}']
  run = k8s_pod.Run(
    name,
    IMAGE.value,
    command,
    VOLUME.value,
    token=secrets.token_hex(16),
    user=USER.value,
    egress=EGRESS.value,
  )
  groups = _groups(program, placement, run_dir(name))
  manifests = {
    'jobset.yaml': [k8s_manifest.jobset(run, groups)],
    'networkpolicy.yaml': k8s_network.policies(run, groups),
  }
  header = f'# Written by launch.py; {_HONESTY}.\n'
  files = {n: header + yaml.safe_dump_all(m, sort_keys=False) for n, m in manifests.items()}
  image = dockerfile(placement, own)
  if dry_run:
    placed = {group.label: group.resources for group in groups}
    return '---\n'.join([describe.describe(program, placed) + '\n', *files.values()])
  directory = OUTPUT.value
  try:
    os.makedirs(directory, exist_ok=True)
    for file, text in {**files, 'Dockerfile': image}.items():
      with open(os.path.join(directory, file), 'w') as f:
        f.write(text)
  except OSError as error:
    raise ValueError(f'--output={directory} cannot be written: {error.strerror}.') from error
  return _instructions(run, groups, directory)


def dockerfile(placement: Mapping[str, Resources], own: Sequence[str] = ()) -> str:
  """Returns a Dockerfile for the image of every pod, to be built where launch.py is.

  Raises:
    ValueError: if it cannot name a directory; one sentence.
  """
  for directory in own:
    if not re.fullmatch(r'\w[\w./-]*', directory, re.ASCII):
      raise ValueError(
        f'directory {directory!r} of --program or --env cannot be named in a Dockerfile; rename it with '
        'letters, digits, underscores, points and hyphens.'
      )
  kinds = {resources.accelerator_kind for resources in placement.values()}
  locks = ['requirements.txt', *(lock for kind, lock in _LOCKS.items() if kind in kinds)]
  lines = [
    '# Written by launch.py, not built. From the directory of launch.py:',
    '#   docker build -f THIS_FILE -t IMAGE .',
    'FROM python:3.10-slim',
    'WORKDIR /launchpod',
    f'COPY {" ".join(locks)} ./',
    *(f'RUN pip install --no-cache-dir --no-deps --require-hashes -r {lock}' for lock in locks),
    *(f'COPY {source} {source}' for source in (*_SOURCES, *own)),
    'COPY launch.py .',
    'RUN chmod -R a+rX .',
    f'USER {k8s_pod.USER}:{k8s_pod.USER}',
  ]
  return '\n'.join(lines) + '\n'


_LOCKS = {'tpu': 'requirements-tpu.txt', 'gpu': 'requirements-cuda12.txt'}


def _groups(
  program: lp.Program, placement: Mapping[str, Resources], directory: str
) -> list[k8s_pod.Group]:
  """Returns the groups of the graph; raises ValueError if a node cannot run in another process."""
  ports = pod.ports(program, PORT.value)
  with tempfile.TemporaryDirectory(prefix='launchpod-') as payloads:
    tasks = core.prepare(
      program, lambda label, index, count: ['unknown:1'] * count, lambda: None, payloads
    )
    told = set()
    for task in tasks:
      with open(task.payload, 'rb') as f:
        if directory.encode() in f.read():
          told.add(task.label)
  placement = {
    # Without a volume, a new pod of these would find nothing to go on from.
    label: dataclasses.replace(resources, restart='never')
    if label in told and not VOLUME.value
    else resources
    for label, resources in placement.items()
  }
  return [
    k8s_pod.Group(
      label=label,
      size=len(nodes),
      resources=placement[label],
      ports=[port for index in range(len(nodes)) for port in ports[label, index]],
      knows_run_dir=label in told,
    )
    for label, nodes in program.groups.items()
  ]


def _instructions(run: k8s_pod.Run, groups: Sequence[k8s_pod.Group], directory: str) -> str:
  if run.volume:
    writers = ', '.join(g.label for g in groups if g.knows_run_dir)
    kept = (
      f'The run directory is {run_dir(run.name)} on the volume {run.volume}, which is mounted in '
      f'{writers}; unless one machine has them all, it must be ReadWriteMany. Applied again under '
      'the same name, the run goes on from its newest checkpoint.'
    )
  else:
    kept = (
      'The run directory is lost with the pods, parameters and curves with it: name a '
      'PersistentVolumeClaim with --k8s_volume to keep it.'
    )
  file = os.path.join(directory, 'Dockerfile')
  return '\n'.join(
    [
      f'Wrote jobset.yaml, networkpolicy.yaml and Dockerfile to {directory}; {_HONESTY}.',
      kept,
      'In a cluster with the JobSet controller, once the image is there '
      f'({shlex.join(["docker", "build", "-f", file, "-t", run.image, "."])}):',
      f'  kubectl apply -f {shlex.quote(directory)}',
      f'  {k8s_manifest.follow_command(run, groups)}',
    ]
  )
