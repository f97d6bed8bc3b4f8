"""The engines for Kubernetes: `Kubernetes` writes manifests, `Pod` runs a node in one of their pods."""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from absl import flags

from environments import user_file
from launchers import certificate, node_entry, own_python, run, streams, terminal
from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.k8s import container, jobset, liveness, manifests, pod
from launchers.options import option
from launchers.supervise import NO_CALLBACKS, RunCallbacks
from rundir import files, one_line, run_directory
from rundir import secrets as option_secrets

# Name of an object of Kubernetes.
_NAME = re.compile(r'(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
_LONGEST_LABEL = 63
# Errors of a volume that may pass: a lock, a full disk, an unreachable server.
_PASSING = {
  *(errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.ETIMEDOUT),
  None,  # Of a BlockingIOError without a number.
}
_ONE_PYTHON = (
  'on Kubernetes every node runs with the interpreter of --image; build that image with the Python and '
  'the packages of the environment.'
)
_REFUSES = {
  'actor_python': f'--actor_python cannot be given: {_ONE_PYTHON}',
  'node_output': '--node_output is not for Kubernetes, where kubectl logs shows the output; leave it '
  'out.',
  'web': '--web needs the run directory on this machine; leave it out, and use watch.py.',
  'resume': '--resume is not for --launcher=k8s; apply the manifests again, and see --k8s_volume.',
}


def _port() -> Any:
  """Returns the option that a pod and the manifests with its command have to agree on."""
  return option(
    8900,
    'first port of the nodes; the others follow it',
    flag='k8s_port',
    at_least=1024,
    at_most=60000,
  )


@dataclasses.dataclass(frozen=True)
class Kubernetes(Engine):
  """Writes manifests; contacts no cluster.

  Attributes:
    output: directory for the files.
    image: container image of the pods.
    name: name of the JobSet; empty for one of program, environment and time.
    volume: PersistentVolumeClaim for the run directory; empty for none.
    port: first port of the nodes.
    user: user and group id of all pods; see `container.Run`.
    egress: see `container.Run`.
    queue: see `container.Run`.
    priority: see `container.Run`.
  """

  output: str = option('', 'directory for the files of --launcher=k8s', flag='output')
  image: str = option('', 'container image of the pods of --launcher=k8s', flag='image')
  name: str = option('', 'name of the JobSet; empty: <program>-<env>-<time>', flag='k8s_name')
  volume: str = option(
    '',
    'PersistentVolumeClaim for the run directory; empty: it is lost with the pods',
    flag='k8s_volume',
  )
  port: int = _port()
  user: int | None = option(
    None,
    'user and group id of all pods; 0: root; by default '
    f'{container.USER}, but root if a group has a TPU, whose device files belong to root',
    flag='k8s_user',
    kind=int,
    at_least=0,
    at_most=2**31 - 1,
  )
  egress: Sequence[str] = option(
    (),
    'destinations that pods may connect to besides each other and DNS: all, metadata (server of Google '
    'Cloud; always allowed for pods with a TPU), networks such as 10.1.0.0/16 or 10.1.2.3/32:443',
    flag='k8s_egress',
  )
  queue: str = option(
    '', 'LocalQueue of Kueue in which the run waits for its machines', flag='k8s_queue'
  )
  priority: str = option(
    '',
    'WorkloadPriorityClass of the run in the queue of --k8s_queue',
    flag='k8s_priority',
  )

  refuses = {
    **_REFUSES,
    'run_dir': '--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.',
  }
  sends_nodes = False

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path in the pods."""
    return manifests.run_dir(self.name or manifests.jobset_name(program, env))

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError without --image or --output, or if no manifest can express the job."""
    if not self.image.strip():
      raise ValueError('--launcher=k8s needs --image, the container image that the pods will run.')
    one_line.check('--image=', self.image)
    one_line.check('--output=', self.output)
    own_python.refuse(job.placement, _ONE_PYTHON)
    _check_name('--k8s_volume=', self.volume, 'PersistentVolumeClaim')
    _check_name('--k8s_queue=', self.queue, 'LocalQueue', _LONGEST_LABEL)
    _check_name('--k8s_priority=', self.priority, 'WorkloadPriorityClass', _LONGEST_LABEL)
    if self.priority and not self.queue:
      raise ValueError(
        '--k8s_priority is a priority in a queue of Kueue; add --k8s_queue, or give the groups a '
        'priority_class with --placement.'
      )
    for label, resources in job.placement.items():
      _check_name(f'group {label!r}: priority_class ', resources.priority_class, 'PriorityClass')
    if not self.output and not dry_run:
      raise ValueError('--launcher=k8s needs --output, the directory for the files that it writes.')
    generated = self._generate(job)
    return [
      f'group {group.label!r} is placed on spot machines, but the program ends when one is taken back, '
      'because the group is not restarted; see restart in --placement, and --k8s_volume.'
      for group in generated.groups
      if group.resources.provisioning == 'spot' and group.resources.restart == 'never'
    ]

  def preview(self, job: Job) -> str:
    """Returns the description of the graph and the manifests, as a stream of YAML documents."""
    generated = self._generate(job)
    placed = {group.label: group.resources for group in generated.groups}
    words = describe.describe(job.program, placed), describe.requests(job.program, placed)
    return '---\n'.join(['\n\n'.join(words) + '\n', *generated.manifests.values()])

  def start(self, job: Job) -> int:
    """Writes the files. The pods make the run directory, record the run in it and conclude it."""
    run.warn(job)
    return self.launch(job, NO_CALLBACKS)

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Writes the files, and prints how to use them."""
    generated = self._generate(job, certificate.new().decode())
    generated.write(self.output)
    print(generated.instructions(self.output))
    return 0

  def _generate(self, job: Job, pem: str = '***') -> manifests.Generated:
    """Returns the files; raises ValueError if a file of the user's is outside the image."""
    program = _in_image('program', job.name)
    # A Launchpad program may have another option `env`.
    _in_image('env', str(job.config.get('env', '')))
    command = ['python', 'launch.py', f'--program={program}']
    command += [flags.FLAGS[n].serialize() for n in sorted(job.given.keys() - {'env'})]
    command += [f'--env={_in_image("env", str(job.given["env"]))}'] if 'env' in job.given else []
    # Every pod must resolve the same options.
    if 'cpu_cores' not in job.given and 'cpu_cores' in job.config:
      command.append(f'--cpu_cores={job.config["cpu_cores"]}')
    name = manifests.name_of(job.run_dir)
    command += [f'--run_dir={job.run_dir}', '--launcher=pod']
    command += [f'--pod_hosts={jobset.hosts(name)}', f'--k8s_port={self.port}']
    settings = container.Run(
      name,
      self.image,
      command,
      self.volume,
      token=secrets.token_hex(16),
      pem=pem,
      user=self.user,
      egress=self.egress,
      node_timeout=job.node_timeout,
      queue=self.queue,
      priority=self.priority,
    )
    return manifests.generate(job.program, job.placement, settings, self.port)


def _check_name(where: str, name: str, kind: str, longest: int = 253) -> None:
  """Raises ValueError, one sentence, if no object of Kubernetes can have a name; '' is none."""
  if name and not (_NAME.fullmatch(name) and len(name) <= longest):
    raise ValueError(
      f'{where}{name} must be the name of a {kind}: lower-case letters, digits, hyphens and dots, at '
      f'most {longest}.'
    )


def _in_image(flag: str, name: str) -> str:
  """Returns the name of a program or environment in a container; raises ValueError if it has none."""
  with user_file.named_by(flag):
    return user_file.in_checkout(name)


@dataclasses.dataclass(frozen=True)
class Pod(Engine):
  """Runs one node of a graph in this pod. Kubernetes replaces failed pods, so users resume nothing.

  Attributes:
    group: the group of the node.
    hosts: host name pattern of the nodes, with {job} and {index}.
    ends_program: whether the program ends when this pod ends. Only such a pod has the record and the
      view of the run.
    port: first port of the nodes.
  """

  group: str = option('', 'group of this pod; set by the manifest', flag='pod_group')
  hosts: str = option('', 'host name pattern of nodes, with {job} and {index}', flag='pod_hosts')
  ends_program: bool = option(False, 'the program ends when this pod ends', flag='pod_ends_program')
  port: int = _port()

  refuses = _REFUSES
  sends_nodes = False
  repeats_plan = True

  def begin(self) -> None:
    """Starts the heartbeat, so that a pod that hangs while it builds the graph is found too."""
    if path := os.environ.get(liveness.VARIABLE):
      node_entry.begin_heartbeat(liveness.sender(path))

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError outside of a pod."""
    own_python.refuse(job.placement, _ONE_PYTHON)
    if not dry_run:
      pod.node_index()
    return ()

  def start(self, job: Job) -> int:
    """Runs the node of this pod, and the run around it if its end is that of the program.

    Returns:
      The exit code: that of the node, or 1 if this pod can be replaced by one that may have more luck
      with the volume of the run directory.
    """
    if not self.ends_program:
      return self.launch(job, NO_CALLBACKS)
    try:
      with files.reported():
        _claim(job)
        run.record(job)
    except ValueError as error:
      if not _passes(error):
        raise
      streams.say(f'error: {error}', sys.stderr)
      return 1
    began = time.monotonic()
    with terminal.shown(job.program, job.title, job.run_dir, job.node_output) as callbacks:
      code = self.launch(job, callbacks)
    run.conclude(job, code, time.monotonic() - began, resumable=False)
    return code

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs the node of this pod."""
    return pod.launch(
      job.program,
      self.group,
      pod.node_index(),
      self.hosts,
      self.port,
      self.ends_program,
      started=callbacks.started,
    )


def _claim(job: Job) -> None:
  """Creates the run directory, or locks that of the pod which this one replaces.

  Raises:
    ValueError: if the directory is that of another run; one sentence.
  """
  before = run_directory.program_of(job.run_dir)
  run_directory.create_or_reopen(job.run_dir)
  if before:
    _check_same(run_directory.read_record(job.run_dir), job)


def _passes(error: BaseException) -> bool:
  """Returns whether a failure comes from an error of the volume that may pass."""
  cause: BaseException | None = error
  while cause is not None and not isinstance(cause, OSError):
    cause = cause.__cause__
  return cause is not None and cause.errno in _PASSING


def _check_same(record: run_directory.Record, job: Job) -> None:
  """Raises ValueError, one sentence, if a job is not the run of a record, which a pod would continue."""
  found = {'program': record.program, **record.config}
  for name, value in {'program': job.name, **job.fixed}.items():
    before = run_directory.option_value(found.get(name, value))
    if value != before:
      raise ValueError(
        f'--{name}={option_secrets.shown(name, value)}, but the run in {job.run_dir} has '
        f'{option_secrets.shown(name, before)}; give --k8s_name another name, or remove that directory.'
      )
