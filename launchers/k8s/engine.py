"""The engines for Kubernetes: `Kubernetes` writes manifests, `Pod` runs a node in one of their pods."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence

from absl import flags

from environments import user_file
from launchers import certificate, node_entry, streams
from launchers.engine import Engine, Job, TryAgain
from launchers.graph import describe
from launchers.k8s import container, jobset, liveness, manifests, pod
from launchers.supervise import RunCallbacks
from rundir import one_line, run_directory
from rundir import secrets as option_secrets

_OUTPUT = flags.DEFINE_string('output', '', 'directory for the files of --launcher=k8s')
_IMAGE = flags.DEFINE_string('image', '', 'container image of the pods of --launcher=k8s')
_NAME = flags.DEFINE_string('k8s_name', '', 'name of the JobSet; empty: <program>-<env>-<time>')
_VOLUME = flags.DEFINE_string(
  'k8s_volume', '', 'PersistentVolumeClaim for the run directory; empty: it is lost with the pods'
)
_PORT = flags.DEFINE_integer(
  'k8s_port',
  8900,
  'first port of the nodes; the others follow it',
  lower_bound=1024,
  upper_bound=60000,
)
_USER = flags.DEFINE_integer(
  'k8s_user',
  None,
  'user and group id of all pods; 0: root; by default '
  f'{container.USER}, but root if a group has a TPU, whose device files belong to root',
  lower_bound=0,
  upper_bound=2**31 - 1,
)
_EGRESS = flags.DEFINE_list(
  'k8s_egress',
  [],
  'destinations that pods may connect to besides each other and DNS: all, metadata (server of Google '
  'Cloud; always allowed for pods with a TPU), networks such as 10.1.0.0/16 or 10.1.2.3/32:443',
)
_POD_GROUP = flags.DEFINE_string('pod_group', '', 'group of this pod; set by the manifest')
_POD_HOSTS = flags.DEFINE_string(
  'pod_hosts', '', 'host name pattern of nodes, with {job} and {index}'
)
_POD_ENDS_PROGRAM = flags.DEFINE_bool(
  'pod_ends_program', False, 'the program ends when this pod ends'
)
_CLAIM = re.compile(r'(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
# Errors of a volume that may pass: a lock, a full disk, an unreachable server.
_PASSING = {
  *(errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.ETIMEDOUT),
  None,  # Of a BlockingIOError without a number.
}
_NO_OUTPUT = (
  '--node_output is not for Kubernetes, where kubectl logs shows the output; leave it out.'
)
_ONE_PYTHON = (
  'on Kubernetes every node runs with the interpreter of --image; build that image with the Python and '
  'the packages of the environment.'
)


class Kubernetes(Engine):
  """Writes manifests; contacts no cluster."""

  resume_refusal = (
    '--resume is not for --launcher=k8s; apply the manifests again, and see --k8s_volume.'
  )

  @property
  def python_refusal(self) -> str:
    """The interpreter is in the image, which all groups share."""
    return _ONE_PYTHON

  @property
  def node_output_refusal(self) -> str:
    """The output of a pod goes to the log of its container."""
    return _NO_OUTPUT

  @property
  def owns_run_dir(self) -> bool:
    """False: the run directory is in the pods."""
    return False

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path in the pods."""
    if given:
      raise ValueError(
        '--run_dir is chosen for --launcher=k8s; leave it out, and see --k8s_volume.'
      )
    return manifests.run_dir(_NAME.value or manifests.jobset_name(program, env))

  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError without --image or --output, or if no manifest can express the job."""
    if not _IMAGE.value.strip():
      raise ValueError('--launcher=k8s needs --image, the container image that the pods will run.')
    one_line.check('--image=', _IMAGE.value)
    one_line.check('--output=', _OUTPUT.value)
    if _VOLUME.value and not _CLAIM.fullmatch(_VOLUME.value):
      raise ValueError(
        f'--k8s_volume={_VOLUME.value} must be the name of a PersistentVolumeClaim: lower-case letters, '
        'digits, hyphens and dots.'
      )
    if not _OUTPUT.value and not dry_run:
      raise ValueError('--launcher=k8s needs --output, the directory for the files that it writes.')
    self._generate(job)

  def preview(self, job: Job) -> str:
    """Returns the description of the graph and the manifests, as a stream of YAML documents."""
    generated = self._generate(job)
    placed = {group.label: group.resources for group in generated.groups}
    words = describe.describe(job.program, placed), describe.requests(job.program, placed)
    return '---\n'.join(['\n\n'.join(words) + '\n', *generated.manifests.values()])

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Writes the files, and prints how to use them."""
    generated = self._generate(job, certificate.new().decode())
    generated.write(_OUTPUT.value)
    print(generated.instructions(_OUTPUT.value))
    return 0

  def conclude(self, job: Job, code: int, seconds: float) -> None:
    """Prints nothing, because nothing has run."""

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
    command += [f'--pod_hosts={jobset.hosts(name)}', f'--k8s_port={_PORT.value}']
    run = container.Run(
      name,
      _IMAGE.value,
      command,
      _VOLUME.value,
      token=secrets.token_hex(16),
      pem=pem,
      user=_USER.value,
      egress=_EGRESS.value,
      node_timeout=job.node_timeout,
    )
    return manifests.generate(job.program, job.placement, run, _PORT.value)


def _in_image(flag: str, name: str) -> str:
  """Returns the name of a program or environment in a container; raises ValueError if it has none."""
  try:
    return user_file.in_checkout(name)
  except ValueError as error:
    raise ValueError(f'--{flag}={error}') from error


class Pod(Engine):
  """Runs one node of a graph in this pod. Kubernetes replaces failed pods, so users resume nothing."""

  restarts_ended = True

  def begin(self) -> None:
    """Starts the heartbeat, so that a pod that hangs while it builds the graph is found too."""
    if path := os.environ.get(liveness.VARIABLE):
      node_entry.begin_heartbeat(liveness.sender(path))

  @property
  def python_refusal(self) -> str:
    """The interpreter is in the image, which all groups share."""
    return _ONE_PYTHON

  @property
  def node_output_refusal(self) -> str:
    """The output of a pod goes to the log of its container."""
    return _NO_OUTPUT

  @property
  def owns_run_dir(self) -> bool:
    """Whether the program ends when this pod ends."""
    return _POD_ENDS_PROGRAM.value

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path in the manifest; it may be '' in a pod that does not own the directory."""
    return super().run_dir(given, program, env, dry_run) if self.owns_run_dir else given

  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError outside of a pod."""
    if not dry_run:
      pod.node_index()

  def claim(self, job: Job) -> Job:
    """Creates the run directory, or locks the one of the pod that this one replaces.

    Raises:
      ValueError: if the directory is that of another run; one sentence.
      TryAgain: if that pod still has the lock, or the volume fails.
    """
    if self.owns_run_dir and not job.resumed:
      with _replaceable():
        before = run_directory.program_of(job.run_dir)
        run_directory.create_or_reopen(job.run_dir)
        if before:
          _check_same(run_directory.read_record(job.run_dir), job)
    return job

  def record(self, job: Job) -> None:
    """Writes the options and the picture of the graph; raises TryAgain if the volume fails."""
    with _replaceable():
      super().record(job)

  def undo(self, job: Job) -> None:
    """Leaves the run directory as it is, because other pods may use it, or a replacement of this pod."""

  def warnings(self, job: Job) -> Sequence[str]:
    """Returns no warnings, because they were printed with the manifests."""
    return ()

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs the node of this pod. Only the owner of the run directory shows the program."""
    return pod.launch(
      job.program,
      _POD_GROUP.value,
      pod.node_index(),
      _POD_HOSTS.value,
      _PORT.value,
      _POD_ENDS_PROGRAM.value,
      started=callbacks.started if self.owns_run_dir else lambda: None,
    )


@contextlib.contextmanager
def _replaceable() -> Iterator[None]:
  """Raises TryAgain after a failure of the volume that may pass."""
  try:
    yield
  except (ValueError, OSError) as error:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
      cause = cause.__cause__
    if cause is None or cause.errno not in _PASSING:
      raise
    streams.say(f'error: {error}', sys.stderr)
    raise TryAgain from error


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
