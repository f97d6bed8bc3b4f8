"""What an engine is: it decides where and how a graph runs.

To add an engine, write a folder with an `engine.py` that defines an `Engine`, and add a line to
`engines.py`. Its `launch` finds a place for every node, calls `binding.prepare`, and passes one
`watched.Node` per node to `supervise.supervise`. An engine that knows every address in advance sends no
payloads: each process builds the graph, calls `binding.bind` and runs its own node (`one_node.py`).
Engines of the first kind must pass `Contract` of `tests/launchers/contract.py`, others `NodeContract`.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import launchpad as lp

from environments import user_file
from launchers import options, run
from launchers.graph import describe
from launchers.node_output import FILES
from launchers.placement import Resources
from launchers.supervise import RunCallbacks
from rundir import run_directory


@dataclasses.dataclass(frozen=True)
class Job:
  """One graph, built once for one run directory.

  Attributes:
    name: value of --program, or the name of a graph that a user's `main` has built.
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
    prepare: called with the job once its run directory has the record, before a node starts.
    page_port: port of the live page about the run; 0 for a free one, None for no page.
  """

  name: str
  program: lp.Program
  placement: Mapping[str, Resources]
  given: Mapping[str, Any]
  config: Mapping[str, Any]
  resumed: bool = False
  node_timeout: float = math.inf
  node_output: str = FILES
  notes: Sequence[str] = ()
  warnings: Sequence[str] = ()
  fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  remake: Callable[[int], tuple[lp.Program, Mapping[str, Any]]] | None = None
  launch_flags: Sequence[str] = ()
  prepare: Callable[[Job], None] | None = None
  page_port: int | None = None

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


class Engine(abc.ABC):
  """Runs a graph: on this machine, or on Ray, Slurm, Kubernetes or the clouds of SkyPilot.

  An engine is a frozen dataclass whose fields are its options; see `options.option`. So
  `Slurm(cpu_nodes=2)` is what `--launcher=slurm --slurm_cpu_nodes=2` makes, and `launchers.launch` and
  launch.py call the same methods of it, in the order in which they stand here. Only `check` and `launch`
  have no default. A method rejects a job with a one-sentence ValueError.

  Attributes:
    refuses: flags of launch.py that this engine cannot take, each with the sentence that says so.
    sends_nodes: whether it pickles the nodes and runs each in a process of ours, so that a node may have
      an interpreter and a profile of its own.
    on_this_machine: whether every node runs on this machine.
    repeats_plan: whether an earlier process has made the same plan, tried the agent and printed the
      warnings.
  """

  refuses: ClassVar[Mapping[str, str]] = {}
  sends_nodes: ClassVar[bool] = True
  on_this_machine: ClassVar[bool] = False
  repeats_plan: ClassVar[bool] = False

  def __post_init__(self) -> None:
    options.check(self)

  @property
  def sends_files(self) -> bool:
    """Whether its nodes have the files of this machine that the user names, such as a torso's."""
    return self.sends_nodes or self.on_this_machine

  def begin(self) -> None:  # noqa: B027 (Most engines have nothing to begin.)
    """Called before anything is planned."""

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path of a new run's directory, which `start` creates.

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
      if given:
        run_directory.check_unused(run_directory.absolute(given))
      return given
    return run_directory.absolute(given or run_directory.default_path(program, env))

  @abc.abstractmethod
  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError for a job that this engine cannot run, as far as is known before the start.

    Returns:
      Warnings about a job that it can run; one sentence each.
    """

  def preview(self, job: Job) -> str:
    """Returns the output of --dry_run."""
    return '\n\n'.join([describe.describe(job.program, job.placement), *job.notes])

  def start(self, job: Job) -> int:
    """Runs a job from its empty directory to its result, see `run.start`; returns the exit code."""
    return run.start(self, job)

  def place(self, job: Job) -> Job:
    """Returns the job with what only now can be decided, such as the devices of this machine.

    Nothing has been written or started yet.
    """
    return job

  @abc.abstractmethod
  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs the nodes of a job to completion; returns the exit code.

    Args:
      job: the job, whose run directory exists.
      callbacks: called while the program runs, if this process supervises it.

    Raises:
      ValueError: the engine rejects the job, of which no node has started; one sentence.
    """

  def conclude(self, job: Job, code: int, seconds: float) -> None:
    """Records the end of the run, and prints its result or the command that resumes it.

    Args:
      job: the job.
      code: its exit code.
      seconds: for which it ran.
    """
    run.conclude(job, code, seconds)
