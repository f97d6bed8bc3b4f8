"""The engines for SkyPilot: `SkyPilot` writes a job group, `Task` runs a node on one of its machines."""

from __future__ import annotations

import dataclasses
import math
import secrets
import shlex
from collections.abc import Sequence
from typing import IO

import yaml

from launchers import certificate, one_node, own_python, run
from launchers.engine import Engine, Job
from launchers.graph import describe
from launchers.options import option
from launchers.skypilot import job_group, task
from launchers.supervise import NO_CALLBACKS, RunCallbacks
from rundir import files, one_line

_NOTE = "checked with SkyPilot's own loader, not run on a cloud"
_LONGEST_NAME = 30


@dataclasses.dataclass(frozen=True)
class SkyPilot(Engine):
  """Writes a job group; needs no SkyPilot here, and contacts no cloud.

  Attributes:
    output: the file to write.
    image: container image of the tasks.
    name: name of the job group; empty for one of program, environment and time.
    infra: see `job_group.Run`.
    volume: SkyPilot's volume for the run directory; empty for none.
  """

  output: str = one_node.output_option()
  image: str = one_node.image_option()
  name: str = option('', 'name of the job group; empty: <program>-<env>-<time>', flag='sky_name')
  infra: str = option(
    '',
    'where to rent machines: kubernetes, aws, gcp/us-central1; empty: where it is cheapest',
    flag='sky_infra',
  )
  volume: str = option(
    '',
    "SkyPilot's volume for the run directory; empty: it is lost with the machines",
    flag='sky_volume',
  )

  refuses = {
    **one_node.REFUSES,
    'run_dir': '--run_dir is chosen for --launcher=skypilot; leave it out, and see --sky_volume.',
    'resume': '--resume is not for --launcher=skypilot; launch the job group of the same --sky_name '
    'again, and see --sky_volume.',
  }
  sends_nodes = False

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path on the machines."""
    return one_node.run_dir(self.name or one_node.default_name(program, env, _LONGEST_NAME))

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError without --image or --output, or if no job group can express the job."""
    if not self.image.strip():
      raise ValueError('--launcher=skypilot needs --image, the container image of the tasks.')
    one_node.check_image(self.image)
    for flag, value in (
      ('--output=', self.output),
      ('--sky_infra=', self.infra),
      ('--sky_volume=', self.volume),
    ):
      one_line.check(flag, value)
    own_python.refuse(job.placement, one_node.ONE_PYTHON)
    if not self.output and not dry_run:
      raise ValueError('--launcher=skypilot needs --output, the file to write, as in run.sky.yaml.')
    self._text(job)
    return [
      f'group {label!r} is placed on spot machines, and begins again from nothing when one is taken '
      'back; name a volume with --sky_volume.'
      for label, resources in job.placement.items()
      if resources.provisioning == 'spot' and one_node.has_run_dir(resources) and not self.volume
    ]

  def preview(self, job: Job) -> str:
    """Returns the description of the graph and the job group, as a stream of YAML documents."""
    words = super().preview(job), describe.requests(job.program, job.placement)
    return '\n\n'.join(words) + f'\n{self._text(job)}'

  def start(self, job: Job) -> int:
    """Writes the file. The tasks make the run directory, record the run in it and conclude it."""
    run.warn(job)
    return self.launch(job, NO_CALLBACKS)

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Writes the file, and prints how to use it."""
    text = self._text(job, task.secret(certificate.new()))
    try:
      with files.replacing(self.output, mode=0o600) as f:
        f.write(text.encode())
    except OSError as error:
      raise ValueError(f'--output={self.output} cannot be written: {error.strerror}.') from error
    kept = (
      f'The run directory is {job.run_dir} on the volume {self.volume}; launched again under the same '
      'name, the run continues from its newest checkpoint.'
      if self.volume
      else 'The run directory is lost with the machines, parameters and curves with it: name a volume '
      'with --sky_volume to keep it.'
    )
    print(
      f'Wrote {self.output}; {_NOTE}.\n'
      'It holds the key of the run: keep it from others, and out of version control.\n'
      f'{kept}\n'
      'Once the image is there, built with --build-arg USER=0:\n'
      f'  sky jobs launch {shlex.quote(self.output)}'
    )
    return 0

  def _text(self, job: Job, secret: str = '***') -> str:
    """Returns the file; raises ValueError if SkyPilot cannot run the job."""
    command = [*one_node.command(job, job_group.PYTHON), '--launcher=task']
    if math.isfinite(job.node_timeout):
      command.append(f'--node_timeout={job.node_timeout:g}')
    settings = job_group.Run(
      one_node.name_of(job.run_dir),
      self.image,
      command,
      self.infra,
      self.volume,
      token=secrets.token_hex(16),
      secret=secret,
    )
    documents = job_group.documents(job.program, job.placement, settings)
    return f'# Written by launch.py; {_NOTE}.\n' + yaml.safe_dump_all(
      documents, sort_keys=False, explicit_start=True
    )


@dataclasses.dataclass(frozen=True)
class Task(one_node.OneNode):
  """Runs one node of a graph on this machine, and restarts it.

  Attributes:
    group: the group of the node.
    hosts: host name pattern of the nodes, with {job} and {index}.
    ending: the group of the node whose end is that of the program. Only that node has the record and
      the view of the run.
    port: first port, of the reports of failures; those of the nodes follow.
    restarts: largest number of restarts of the node in a row.
  """

  group: str = option('', 'group of this task; set by the job group', flag='task_group')
  hosts: str = option('', 'host name pattern of nodes, with {job} and {index}', flag='task_hosts')
  ending: str = option('', 'group whose end is that of the program', flag='task_ending')
  port: int = one_node.port_option('task_port')
  restarts: int = option(
    0, 'largest number of restarts of the node in a row', flag='task_restarts', at_least=0
  )

  name_flag = 'sky_name'

  @property
  def concludes(self) -> bool:
    """Whether the end of this node is that of the program."""
    return self.group == self.ending

  def begin(self) -> None:
    """Takes the certificate of the run from the environment."""
    _certificates.append(task.take_certificate())

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError outside of a task."""
    own_python.refuse(job.placement, one_node.ONE_PYTHON)
    if not dry_run:
      task.node_index()
    return ()

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs the node of this machine."""
    place = task.Place(
      self.group, task.node_index(), self.hosts, self.ending, self.port, self.restarts
    )
    return task.launch(job.program, place, callbacks, job.node_timeout)


# Open for as long as this process lives.
_certificates: list[IO[bytes] | None] = []
