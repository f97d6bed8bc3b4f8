"""The interface between launch.py and an engine. An engine decides where and how a graph runs.

To add an engine, write a folder with an `engine.py` that defines its flags and an `Engine`, and add a
line to `engines.py`. `launch` finds a place for every node, calls `binding.prepare`, and passes one
`watched.Node` per node to `supervise.supervise`. An engine that knows every address in advance sends no
payloads: each process builds the graph, calls `binding.bind` and runs its own node (`k8s/pod.py`).
Engines of the first kind must pass `Contract` of `tests/launchers/contract.py`, others `NodeContract`.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import launchpad as lp

from environments import user_file
from launchers import stop_requests, streams
from launchers.graph import describe, flow, picture
from launchers.node_output import FILES
from launchers.placement import Resources
from launchers.supervise import RunCallbacks
from rundir import evaluation_gap, files, graph_file, run_directory, run_end

LONGEST_SECONDS = 1e7  # Of a timeout.


class TryAgain(Exception):
  """A launch has failed and said why, and the same command may succeed later."""

  exit_code = 1


@dataclasses.dataclass(frozen=True)
class Job:
  """One graph, built once for one run directory.

  Attributes:
    name: value of --program.
    program: the graph.
    placement: resources of each group, with the changes of the user's file applied.
    given: the options that the user set, by name.
    config: every option, by name; `run_dir` is the run directory, '' in a dry run without one.
    resumed: whether the run directory belongs to an earlier run; this process then holds its lock.
    node_timeout: see `supervise.supervise`.
    node_output: where the output of nodes goes besides their logs; see `launchers.node_output`.
    notes: paragraphs that a preview prints after the graph.
    warnings: warnings about the options; one sentence each.
    fixed: the options that stay the same for the whole run, with their values.
    remake: returns graph and options of the run when it is resumed for the n-th time; None for a program
      without checkpoints that are known here, such as one of the user's own.
    launch_flags: the given flags that choose where and how the program runs, such as --launcher=ray. A
      run directory does not record them, so that a run can be resumed elsewhere.
  """

  name: str
  program: lp.Program
  placement: Mapping[str, Resources]
  given: Mapping[str, Any]
  config: Mapping[str, Any]
  resumed: bool
  node_timeout: float
  node_output: str = FILES
  notes: Sequence[str] = ()
  warnings: Sequence[str] = ()
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  remake: Callable[[int], tuple[lp.Program, Mapping[str, Any]]] | None = None
  launch_flags: Sequence[str] = ()

  @property
  def run_dir(self) -> str:
    """The run directory."""
    return str(self.config['run_dir'])

  @property
  def title(self) -> str:
    """The title of the live view."""
    return title(self.name, self.config, self.run_dir)


def title(program: str, config: Mapping[str, Any], run_dir: str) -> str:
  """Returns the title of a run: its program, environment and directory.

  Args:
    program: value of --program.
    config: its options; a user's own Launchpad program has no `env` among them.
    run_dir: the run directory.
  """
  env = env_title(config)
  return f'{user_file.title(program)}{env and f" on {env}"}  {run_dir}'


def env_title(config: Mapping[str, Any]) -> str:
  """Returns the title of a run's environment; '' for a Launchpad program without one."""
  env = config.get('env', '')
  return user_file.title(env) if isinstance(env, str) else ''


def record(job: Job) -> None:
  """Writes the options and the picture of the graph into the run directory.

  Raises:
    ValueError: if the record of an earlier run is invalid, or a file cannot be written; one sentence.
  """
  changed = run_directory.write_record(job.run_dir, job.name, dict(job.given), job.config)
  if changed:
    streams.say(f'warning: {changed}', sys.stderr)
  with files.reported():
    graph_file.write(job.run_dir, flow.graph(job.program, job.placement))
  for name in ('graph.md', 'graph.svg'):
    picture.write(os.path.join(job.run_dir, name), job.program, job.placement)


class Engine(abc.ABC):
  """Runs a graph: on this machine, or on Ray, Slurm or Kubernetes. Its module defines its flags.

  launch.py calls the methods in the order in which they are defined here. A method rejects a job with
  a one-sentence ValueError.

  Attributes:
    restarts_ended: whether the engine itself restarts an ended process, so that users never resume a
      run.
    resume_refusal: why this engine does not support --resume; '' if it does.
    on_this_machine: whether every node runs on this machine.
  """

  restarts_ended: bool = False
  resume_refusal: str = ''
  on_this_machine: bool = False
  _earlier: Mapping[str, bytes] = {}  # Of a run that is resumed, what `record` replaces.

  def begin(self) -> None:  # noqa: B027 (Most engines have nothing to begin.)
    """Called before anything is planned."""

  @property
  def pickles_nodes(self) -> bool:
    """Whether nodes are pickled, because each runs in a separate process."""
    return True

  @property
  def python_refusal(self) -> str:
    """Why this engine does not support `Resources.python`; '' if it does."""
    return ''

  @property
  def node_output_refusal(self) -> str:
    """Why this engine does not support --node_output; '' if it does."""
    return ''

  @property
  def profiles_nodes(self) -> bool:
    """Whether nodes run in processes of ours, which can record profiles into the run directory."""
    return self.pickles_nodes and self.owns_run_dir

  @property
  def owns_run_dir(self) -> bool:
    """Whether this process creates the run directory and records the run in it."""
    return True

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path of a new run's directory, which `claim` creates.

    The path is chosen before the graph is built, because nodes store it. The directory is created only
    after every check, so that a rejected launch leaves no files.

    Args:
      given: the user's --run_dir, or ''.
      program: title of the program.
      env: title of the environment.
      dry_run: whether nothing will run; `given` is then returned as it is.

    Raises:
      ValueError: in a dry run, if the launch would reject `given`; one sentence.
    """
    if dry_run:
      if given and self.owns_run_dir:
        run_directory.check_unused(run_directory.absolute(given))
      return given
    return run_directory.absolute(given or run_directory.default_path(program, env))

  @abc.abstractmethod
  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError for a job that this engine cannot run, as far as is known before the start."""

  def claim(self, job: Job) -> Job:
    """Creates and locks the run directory of a new run.

    Returns:
      The job with what only now can be decided, such as the devices of this machine.
    """
    if self.owns_run_dir and not job.resumed:
      run_directory.create(job.run_dir)
    return job

  def warnings(self, job: Job) -> Sequence[str]:
    """Returns warnings to print before the program starts; one sentence each."""
    return job.warnings

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run."""
    return '\n\n'.join([describe.describe(job.program, job.placement), *job.notes])

  def record(self, job: Job) -> None:
    """Writes the options and the picture of the graph into the run directory."""
    if not self.owns_run_dir:
      return
    if job.resumed:
      self._earlier = run_directory.earlier_files(job.run_dir)
      run_end.delete_evaluation(job.run_dir)
    record(job)

  @abc.abstractmethod
  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs a job to completion; returns the exit code.

    Args:
      job: the job.
      callbacks: called while the program runs, if this process supervises it.

    Raises:
      ValueError: the engine rejects the job, of which no node has started; one sentence.
    """

  def undo(self, job: Job) -> None:
    """Undoes what was written for a run that `launch` has rejected.

    The files of a new run are removed. A run that was to be resumed has its record and its result back.
    """
    if self.owns_run_dir and not job.resumed:
      run_directory.delete_rejected(job.run_dir)
    elif self._earlier:
      run_directory.restore(job.run_dir, self._earlier)

  def conclude(self, job: Job, code: int, seconds: float) -> None:
    """Records the end of the run, and prints its result or the command that resumes it.

    Args:
      job: the job.
      code: its exit code.
      seconds: for which it ran.
    """
    if self.owns_run_dir:
      run_end.record_end(job.run_dir, code, seconds)
    if code == 0:
      if done := run_end.result(job.run_dir):
        if note := evaluation_gap.remark(job.run_dir):
          streams.say(note, sys.stderr)
        streams.say(done)
      return
    if code in stop_requests.EXIT_CODES.values():
      streams.say(f'stopped: seconds={seconds:.1f} run_dir={job.run_dir}', sys.stderr)
    if not self.restarts_ended and run_directory.has_checkpoints(job.run_dir):
      words = [_python(), 'launch.py', f'--resume={job.run_dir}', *job.launch_flags]
      streams.say(f'to resume: {shlex.join(words)}', sys.stderr)


def _python() -> str:
  """Returns the path of this interpreter, relative if it is below the working directory."""
  try:
    relative = os.path.relpath(sys.executable)
  except FileNotFoundError:  # The working directory has been removed.
    return sys.executable
  return sys.executable if relative.startswith(os.pardir) else relative
