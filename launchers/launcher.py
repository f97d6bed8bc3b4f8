"""What launch.py asks of an engine, which is where and how a graph runs. `engines.py` lists them.

To add one, write a folder with an `engine.py`, which defines its flags and a `Launcher`, and add a line
to `engines.py`. `launch` finds a place for every node, calls `binding.prepare`, and hands
`supervise.supervise` one `watched.Node` for each node. Where every address is known in advance, no
payload needs to be sent: as in `k8s/pod.py`, each process builds the graph, calls `binding.bind` and
runs its own node. `tests/launchers/contract.py` has the scenarios that an engine of the first kind
must pass.
"""

from __future__ import annotations

import abc
import dataclasses
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import launchpad as lp

from environments import own_file
from launchers import terminal
from launchers.graph import describe, picture
from launchers.placement import Resources
from launchers.supervise import RunCallbacks
from rundir import run_directory


@dataclasses.dataclass(frozen=True)
class Job:
  """What is launched: one graph, built once for one run directory.

  Attributes:
    name: of the program, as the flag has it.
    program: the graph.
    placement: resources for each group, as the user's file changes them.
    given: the options that the user set, by name.
    config: every option; `run_dir` is the directory of the run, '' if a dry run has none.
    resumed: whether the run directory is that of an earlier run, which this process has locked.
    node_timeout: see `supervise.supervise`.
    notes: what a preview says beside the graph; one paragraph each.
    warnings: what the user should know of the options; one sentence each.
  """

  name: str
  program: lp.Program
  placement: Mapping[str, Resources]
  given: Mapping[str, Any]
  config: Any
  resumed: bool
  node_timeout: float
  notes: Sequence[str] = ()
  warnings: Sequence[str] = ()

  @property
  def run_dir(self) -> str:
    """The run directory."""
    return self.config.run_dir

  @property
  def title(self) -> str:
    """The title of the live view."""
    return f'{own_file.title(self.name)} on {own_file.title(self.config.env)}  {self.run_dir}'


class Launcher(abc.ABC):
  """An engine. Its module defines the flags that belong to it.

  launch.py calls the methods in the order in which they stand here. Every refusal is a ValueError of
  one sentence.

  Attributes:
    resume_flags: what the command that resumes a run needs beside --resume; None if the engine
      itself restarts what has ended, so that the user resumes nothing.
    resume_refusal: why --resume does not go with this engine; '' if it does.
  """

  resume_flags: str | None = ''
  resume_refusal: str = ''

  @property
  def pickles_nodes(self) -> bool:
    """Whether nodes are pickled, because they run in processes of their own."""
    return True

  @property
  def owns_run_dir(self) -> bool:
    """Whether this process creates the run directory and records the run in it."""
    return True

  def run_dir(self, given: str, program: str, env: str, dry_run: bool) -> str:
    """Returns the path of a new run's directory, which `claim` creates.

    The path is chosen before the graph is built, since nodes hold it. The directory is created only
    after every check, so that a refused launch leaves nothing behind.

    Args:
      given: the user's --run_dir, or ''.
      program: title of the program.
      env: title of the environment.
      dry_run: whether nothing will run; then '' may stay ''.
    """
    if dry_run:
      return given
    return run_directory.absolute(given or run_directory.default_path(program, env))

  @abc.abstractmethod
  def check(self, job: Job, dry_run: bool) -> None:
    """Refuses a job that this engine cannot run, as far as can be known before anything starts."""

  def claim(self, job: Job) -> None:
    """Creates the run directory of a new run, and locks it for this process."""
    if self.owns_run_dir and not job.resumed:
      run_directory.create(job.run_dir)

  def warnings(self, job: Job) -> Sequence[str]:
    """Returns what the user should know before the program starts; one sentence each."""
    return job.warnings

  def preview(self, job: Job) -> str:
    """Returns what --dry_run prints."""
    return '\n\n'.join([describe.describe(job.program, job.placement), *job.notes])

  def record(self, job: Job) -> None:
    """Writes the options and the picture of the graph into the run directory."""
    if not self.owns_run_dir:
      return
    changed = run_directory.write_record(job.run_dir, job.name, dict(job.given), job.config)
    if changed:
      terminal.say(f'warning: {changed}', sys.stderr)
    for name in ('graph.md', 'graph.svg'):
      picture.write(os.path.join(job.run_dir, name), job.program, job.placement)

  @abc.abstractmethod
  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs a job to its end; returns the exit code.

    Args:
      job: the job.
      callbacks: what to call while the program runs, if this process supervises it.
    """

  def conclude(self, job: Job, code: int) -> None:
    """Says what the run has achieved, or how to resume it."""
    if code == 0:
      if done := run_directory.result(job.run_dir):
        terminal.say(done)
    elif self.resume_flags is not None and run_directory.has_checkpoints(job.run_dir):
      flags = shlex.quote(f'--resume={job.run_dir}') + self.resume_flags
      terminal.say(f'to go on: python launch.py {flags}', sys.stderr)
