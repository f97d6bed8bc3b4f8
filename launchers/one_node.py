"""What the pods of Kubernetes and the tasks of SkyPilot have in common.

The cluster starts a process for each node of a graph, and knows nothing of graphs. No payload is sent:
each process builds the whole graph from the same command, binds every node's address, which is known in
advance, and runs its own node. The end of one of them is that of the program.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import launchpad as lp
from absl import flags

from environments import user_file
from launchers import run, streams, terminal
from launchers.engine import Engine, Job
from launchers.options import option
from launchers.placement import Resources
from launchers.supervise import NO_CALLBACKS
from rundir import files, run_directory
from rundir import secrets as option_secrets

# Where the volume with the run directories is mounted.
RUNS = '/runs'
FIRST_PORT = 8900
ONE_PYTHON = (
  'on Kubernetes and under SkyPilot every node runs with the interpreter of --image; build that image '
  'with the Python and the packages of the environment.'
)
# Flags that no process of such a cluster can take.
REFUSES = {
  'actor_python': f'--actor_python cannot be given: {ONE_PYTHON}',
  'node_output': '--node_output is not for Kubernetes and SkyPilot, where kubectl logs and sky jobs '
  'logs show the output; leave it out.',
  'web': '--web needs the run directory on this machine; leave it out, and use watch.py.',
}
# Characters of a reference to an image, which registries check further.
_IMAGE = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.\-/:@]*')
# Errors of a volume that may pass: a lock, a full disk, an unreachable server.
_PASSING = {
  *(errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO, errno.ETIMEDOUT),
  None,  # Of a BlockingIOError without a number.
}


def check_image(image: str) -> None:
  """Raises ValueError, one sentence, if a container image cannot have a name."""
  if not _IMAGE.fullmatch(image):
    raise ValueError(
      f'--image={image} must be the name of a container image, such as registry.example/launchpod:1.'
    )


def image_option() -> Any:
  """Returns the option for the image of every process."""
  return option(
    '', 'container image of every node of --launcher=k8s and --launcher=skypilot', flag='image'
  )


def output_option() -> Any:
  """Returns the option for what the engine writes."""
  return option(
    '',
    'what to write: a directory with --launcher=k8s, a file with --launcher=skypilot',
    flag='output',
  )


def port_option(flag: str) -> Any:
  """Returns the option for ports, on which all processes have to agree."""
  return option(
    FIRST_PORT,
    'first port of the nodes; the others follow it',
    flag=flag,
    at_least=1024,
    at_most=60000,
  )


def default_name(program: str, env: str, longest: int) -> str:
  """Returns a name from the program, the environment and the time: letters, digits and hyphens.

  Args:
    program: title of the program.
    env: title of the environment.
    longest: number of characters.
  """
  what = [re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-') for text in (program[:12], env)]
  now = time.strftime('%m%d%H%M%S')
  room = longest - len(now) - 1
  return f'{"-".join(filter(None, what))[:room].rstrip("-")}-{now}'


def run_dir(name: str) -> str:
  """Returns a run's directory in its processes."""
  return f'{RUNS}/{name}'


def name_of(run_dir: str) -> str:
  """Returns the name of the run with that directory."""
  return run_dir.removeprefix(f'{RUNS}/')


def has_run_dir(resources: Resources) -> bool:
  """Returns whether the nodes of a group have the run directory.

  The node that ends the program records the run, so it has the directory whatever its group declares.
  """
  return resources.uses_run_dir or resources.with_launcher


def host_name(label: str) -> str:
  """Returns a group's name in host names and manifests, where underscores are not allowed."""
  return label.replace('_', '-')


def check_host_names(labels: Iterable[str]) -> None:
  """Raises ValueError, one sentence, if a group cannot be part of a host name, or two of the same."""
  found: dict[str, str] = {}
  for label in labels:
    name = host_name(label)
    if not re.fullmatch(r'[a-z0-9]([-a-z0-9]*[a-z0-9])?', name):
      raise ValueError(f'group {label!r} cannot be part of a host name; rename it.')
    if found.setdefault(name, label) != label:
      raise ValueError(
        f'groups {found[name]!r} and {label!r} are both called {name} in host names.'
      )


def ending_group(sizes: Mapping[str, int], placement: Mapping[str, Resources]) -> str | None:
  """Returns the group whose end is that of the program; None if each node has to end.

  Args:
    sizes: number of nodes of each group.
    placement: resources of each group.

  Raises:
    ValueError: if more than one node is placed with the launcher.
  """
  found = [label for label in sizes if placement[label].with_launcher]
  if sum(sizes[label] for label in found) > 1:
    raise ValueError(
      f'{" and ".join(map(repr, found))} are placed with_launcher, but on a cluster without a launcher '
      'the end of one node is the end of the program; leave with_launcher to one node with --placement.'
    )
  return found[0] if found else None


def ports(program: lp.Program, first_port: int) -> dict[tuple[str, int], list[int]]:
  """Returns the ports of every node, {(label, index): ports}; no two nodes share one."""
  result, port = {}, first_port
  for label, nodes in program.groups.items():
    for index, node in enumerate(nodes):
      result[label, index] = list(range(port, port + len(node.addresses)))
      port += len(node.addresses)
  return result


def addresses(
  program: lp.Program, hosts: str, first_port: int
) -> Callable[[str, int, int], list[str]]:
  """Returns the function that `binding.bind` asks for the addresses of each node.

  Args:
    program: the graph.
    hosts: host name pattern of the nodes, as in 'run-{job}-0-{index}.run'.
    first_port: first port; nodes get consecutive ports.
  """
  numbers = ports(program, first_port)

  def of_node(label: str, index: int, count: int) -> list[str]:
    host = hosts.format(job=host_name(label), index=index)
    return [f'{host}:{port}' for port in numbers[label, index]]

  return of_node


def check_node(program: lp.Program, flag: str, label: str, index: int) -> None:
  """Raises ValueError if a graph has no such node."""
  if index >= len(program.groups.get(label, ())):
    raise ValueError(f'--{flag}={label} has no node {index}; the groups are {[*program.groups]}.')


@dataclasses.dataclass(frozen=True)
class RefuseStop:
  """Stands for `lp.stop()` in a node whose end is not that of the program."""

  node: str

  def __call__(self, mark_as_completed: bool = False) -> None:
    """Raises RuntimeError."""
    raise RuntimeError(
      f'node {self.node} called lp.stop(), but on a cluster without a launcher only a group that is '
      'placed with_launcher ends the program; say so with --placement.'
    )


def command(job: Job, python: str) -> list[str]:
  """Returns the command that builds the same graph in a container; an engine adds its own flags.

  Raises:
    ValueError: a file of the user's is outside the image; one sentence.
  """
  program = _in_image('program', job.name)
  # A Launchpad program may have another option `env`.
  _in_image('env', str(job.config.get('env', '')))
  words = [python, 'launch.py', f'--program={program}']
  words += [flags.FLAGS[n].serialize() for n in sorted(job.given.keys() - {'env'})]
  words += [f'--env={_in_image("env", str(job.given["env"]))}'] if 'env' in job.given else []
  # Every process must resolve the same options.
  if 'cpu_cores' not in job.given and 'cpu_cores' in job.config:
    words.append(f'--cpu_cores={job.config["cpu_cores"]}')
  return [*words, f'--run_dir={job.run_dir}']


def _in_image(flag: str, name: str) -> str:
  """Returns the name of a program or environment in a container; raises ValueError if it has none."""
  with user_file.named_by(flag):
    return user_file.in_checkout(name)


class OneNode(Engine):
  """Runs one node of a graph in a process that the cluster has started.

  Attributes:
    name_flag: the flag that gives another run its own directory.
  """

  name_flag: ClassVar[str]
  refuses: ClassVar[Mapping[str, str]] = {
    **REFUSES,
    'resume': '--resume is not for a cluster that starts the nodes itself; start the run there again.',
  }
  sends_nodes = False
  repeats_plan = True

  @property
  def concludes(self) -> bool:
    """Whether the end of this node is that of the program. Only it has the record and the view."""
    raise NotImplementedError

  def start(self, job: Job) -> int:
    """Runs the node, and the run around it if its end is that of the program.

    Returns:
      The exit code: that of the node, or 1 if another process may have more luck with the volume of the
      run directory.
    """
    if not self.concludes:
      return self.launch(job, NO_CALLBACKS)
    try:
      with files.reported():
        self._claim(job)
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

  def _claim(self, job: Job) -> None:
    """Creates the run directory, or locks that of the process which this one replaces.

    Raises:
      ValueError: if the directory is that of another run; one sentence.
    """
    before = run_directory.program_of(job.run_dir)
    run_directory.create_or_reopen(job.run_dir)
    if before:
      self._check_same(run_directory.read_record(job.run_dir), job)

  def _check_same(self, record: run_directory.Record, job: Job) -> None:
    """Raises ValueError, one sentence, if a job is not the run of a record, which it would continue."""
    found = {'program': record.program, **record.config}
    for name, value in {'program': job.name, **job.fixed}.items():
      before = run_directory.option_value(found.get(name, value))
      if value != before:
        raise ValueError(
          f'--{name}={option_secrets.shown(name, value)}, but the run in {job.run_dir} has '
          f'{option_secrets.shown(name, before)}; give --{self.name_flag} another name, or remove that '
          'directory.'
        )


def _passes(error: BaseException) -> bool:
  """Returns whether a failure comes from an error of the volume that may pass."""
  cause: BaseException | None = error
  while cause is not None and not isinstance(cause, OSError):
    cause = cause.__cause__
  return cause is not None and cause.errno in _PASSING


def index_of(variable: str, which: str) -> int:
  """Returns the index of this process's node in its group.

  Args:
    variable: the cluster's environment variable.
    which: begins the sentence of an error.

  Raises:
    ValueError: if the variable is missing.
  """
  text = os.environ.get(variable, '')
  if not text.isdecimal():
    raise ValueError(f'{which}; {variable}={text!r} does not say which node of the group this is.')
  return int(text)
