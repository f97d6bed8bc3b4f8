"""The engines for Kubernetes: one writes the manifests, the other runs a node in a pod of theirs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from absl import flags

from environments import own_file
from launchers.graph import describe
from launchers.k8s import container, jobset, manifests, pod
from launchers.launcher import Job, Launcher
from launchers.supervise import RunCallbacks
from rundir import one_line, run_directory

_OUTPUT = flags.DEFINE_string('output', '', 'directory for the files of --launcher=k8s')
_IMAGE = flags.DEFINE_string('image', '', 'container image of the pods of --launcher=k8s')
_NAME = flags.DEFINE_string('k8s_name', '', 'of the JobSet; empty: <program>-<env>-<time>')
_VOLUME = flags.DEFINE_string(
  'k8s_volume', '', 'PersistentVolumeClaim that keeps the run directory; empty: lost with the pods'
)
_PORT = flags.DEFINE_integer(
  'k8s_port',
  8900,
  'the ports of the nodes are counted from here',
  lower_bound=1024,
  upper_bound=60000,
)
_USER = flags.DEFINE_integer(
  'k8s_user',
  None,
  'number of the user and group that all pods run as; 0: root; by default '
  f"{container.USER}, but root where a group has a TPU, whose device files are root's",
  lower_bound=0,
)
_EGRESS = flags.DEFINE_list(
  'k8s_egress',
  [],
  "where the pods may connect to, beside each other and DNS: all, metadata (of Google's machines; pods "
  'with a TPU may anyway), networks such as 10.1.0.0/16, with a port such as 10.1.2.3/32:443',
)
_POD_GROUP = flags.DEFINE_string('pod_group', '', 'the group of this pod, as a manifest says it')
_POD_HOSTS = flags.DEFINE_string('pod_hosts', '', 'host name of a node, with {job} and {index}')
_POD_ENDS_PROGRAM = flags.DEFINE_bool('pod_ends_program', False, "this pod's end is the program's")


class Kubernetes(Launcher):
  """Writes manifests and a Dockerfile; contacts no cluster."""

  resume_refusal = (
    '--resume is not for --launcher=k8s; apply the manifests again, and see --k8s_volume.'
  )

  @property
  def owns_run_dir(self) -> bool:
    """False: the directory is in the pods."""
    return False

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path in the pods."""
    if given:
      raise ValueError(
        '--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.'
      )
    return manifests.run_dir(_NAME.value or manifests.jobset_name(program, env))

  def check(self, job: Job, dry_run: bool) -> None:
    """Refuses a job without an image or a directory for the files, or that no manifest can say."""
    if not _IMAGE.value.strip():
      raise ValueError('--launcher=k8s needs --image, the container image that the pods will run.')
    one_line.check('--image=', _IMAGE.value)
    one_line.check('--output=', _OUTPUT.value)
    if not _OUTPUT.value and not dry_run:
      raise ValueError('--launcher=k8s needs --output, the directory for the files that it writes.')
    self._generate(job)

  def preview(self, job: Job) -> str:
    """Returns the graph in words and the manifests, as a stream of documents."""
    generated = self._generate(job)
    placed = {group.label: group.resources for group in generated.groups}
    words = describe.describe(job.program, placed) + '\n'
    return '---\n'.join([words, *generated.manifests.values()])

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Writes the files, and says what to do with them."""
    generated = self._generate(job)
    generated.write(_OUTPUT.value)
    print(generated.instructions(_OUTPUT.value))
    return 0

  def _generate(self, job: Job) -> manifests.Generated:
    """Returns the files; raises ValueError if a file of the user's is in no image."""
    program = _in_image('program', job.name)
    env = _in_image('env', job.config.env)
    command = ['python', 'launch.py', f'--program={program}']
    command += [flags.FLAGS[n].serialize() for n in sorted(job.given.keys() - {'env'})]
    command += [f'--env={_in_image("env", job.given["env"])}'] if 'env' in job.given else []
    name = manifests.name_of(job.run_dir)
    command += [f'--run_dir={job.run_dir}', '--launcher=pod']
    command += [f'--pod_hosts={jobset.hosts(name)}', f'--k8s_port={_PORT.value}']
    own = sorted({os.path.dirname(n) for n in (program, env) if own_file.is_spec(n)})
    run = container.Run(
      name,
      _IMAGE.value,
      command,
      _VOLUME.value,
      token=secrets.token_hex(16),
      user=_USER.value,
      egress=_EGRESS.value,
    )
    return manifests.generate(job.program, job.placement, run, _PORT.value, own)


def _in_image(flag: str, name: str) -> str:
  """Returns the name of a program or environment in a container; ValueError if it is not there."""
  try:
    return own_file.in_checkout(name)
  except ValueError as error:
    raise ValueError(f'--{flag}={error}') from error


class Pod(Launcher):
  """Runs one node of a graph in this pod. Kubernetes replaces a pod, so that no user resumes one."""

  resume_flags = None

  @property
  def owns_run_dir(self) -> bool:
    """Whether this pod is the one whose end is the program's."""
    return _POD_ENDS_PROGRAM.value

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path that the manifest gives; a pod that does not own it may have none."""
    return super().run_dir(given, program, env, dry_run) if self.owns_run_dir else given

  def check(self, job: Job, dry_run: bool) -> None:
    """Refuses to run outside of a pod."""
    if not dry_run:
      pod.node_index()

  def claim(self, job: Job) -> None:
    """Creates the run directory, or locks that of an earlier pod in the place of this one."""
    if self.owns_run_dir and not job.resumed:
      run_directory.create_or_reopen(job.run_dir)

  def warnings(self, job: Job) -> Sequence[str]:
    """Returns none, since they were printed with the manifests."""
    return ()

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs the node of this pod; only the owner of the run directory shows the program."""
    return pod.launch(
      job.program,
      _POD_GROUP.value,
      pod.node_index(),
      _POD_HOSTS.value,
      _PORT.value,
      _POD_ENDS_PROGRAM.value,
      started=callbacks.started if self.owns_run_dir else lambda: None,
    )
