"""The engines for Kubernetes: `Kubernetes` writes manifests, `Pod` runs a node in one of their pods."""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
from collections.abc import Sequence

from launchers import certificate, node_entry, one_node, own_python, run
from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.k8s import container, jobset, liveness, manifests, pod
from launchers.options import option
from launchers.supervise import NO_CALLBACKS, RunCallbacks
from rundir import one_line

# Name of an object of Kubernetes.
_NAME = re.compile(r'(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
_LONGEST_LABEL = 63


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

  output: str = one_node.output_option()
  image: str = one_node.image_option()
  name: str = option('', 'name of the JobSet; empty: <program>-<env>-<time>', flag='k8s_name')
  volume: str = option(
    '',
    'PersistentVolumeClaim for the run directory; empty: it is lost with the pods',
    flag='k8s_volume',
  )
  port: int = one_node.port_option('k8s_port')
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
    **one_node.REFUSES,
    'run_dir': '--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.',
    'resume': '--resume is not for --launcher=k8s; apply the manifests again, and see --k8s_volume.',
  }
  sends_nodes = False

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path in the pods."""
    return one_node.run_dir(self.name or manifests.default_name(program, env))

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError without --image or --output, or if no manifest can express the job."""
    if not self.image.strip():
      raise ValueError('--launcher=k8s needs --image, the container image that the pods will run.')
    one_node.check_image(self.image)
    one_line.check('--output=', self.output)
    own_python.refuse(job.placement, one_node.ONE_PYTHON)
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
    name = one_node.name_of(job.run_dir)
    command = [*one_node.command(job, 'python'), '--launcher=pod']
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


@dataclasses.dataclass(frozen=True)
class Pod(one_node.OneNode):
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
  port: int = one_node.port_option('k8s_port')

  name_flag = 'k8s_name'

  @property
  def concludes(self) -> bool:
    """Whether the end of this pod is that of the program."""
    return self.ends_program

  def begin(self) -> None:
    """Starts the heartbeat, so that a pod that hangs while it builds the graph is found too."""
    if path := os.environ.get(liveness.VARIABLE):
      node_entry.begin_heartbeat(liveness.sender(path))

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError outside of a pod."""
    own_python.refuse(job.placement, one_node.ONE_PYTHON)
    if not dry_run:
      pod.node_index()
    return ()

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
