"""One run under a launcher on this machine, from its empty directory to its result."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

from environments.interpreters import ROOT
from launchers import page, stop_requests, streams, terminal
from launchers.graph import flow, picture
from rundir import evaluation_gap, files, graph_file, run_directory, run_end

if TYPE_CHECKING:
  from launchers.engine import Engine, Job

_LAUNCH = os.path.join(ROOT, 'launch.py')


def start(engine: Engine, job: Job) -> int:
  """Runs a job to completion, records it in its run directory, and prints its result.

  A new run gets its directory only here, after every check. If the engine rejects the job before a node
  has run, as a cluster without enough machines does, the directory is as it was before.

  Returns:
    The exit code.

  Raises:
    ValueError: the directory cannot be used, or the engine rejects the job; one sentence.
  """
  listener = None if job.page_port is None else page.listen(job.page_port)
  job = engine.place(job)
  with contextlib.ExitStack() as undo:
    if not job.resumed:
      run_directory.create(job.run_dir)
      undo.callback(run_directory.delete_rejected, job.run_dir)
    warn(job)
    with files.reported():
      if job.resumed:
        undo.callback(run_directory.restore, job.run_dir, run_directory.earlier_files(job.run_dir))
        run_end.delete_evaluation(job.run_dir)
      record(job)
      if job.prepare is not None:
        job.prepare(job)
    began = time.monotonic()
    shown = terminal.shown(job.program, job.title, job.run_dir, job.node_output, undo.pop_all)
    with page.served(job.run_dir, listener), shown as callbacks:
      code = engine.launch(job, callbacks)
      undo.pop_all()
      undo.enter_context(stop_requests.collected())  # Another Ctrl-C has nothing to stop.
    engine.conclude(job, code, time.monotonic() - began)
  return code


def warn(job: Job) -> None:
  """Prints the warnings of a job to stderr."""
  for sentence in job.warnings:
    streams.say(f'warning: {sentence}', sys.stderr)


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


def conclude(
  job: Job, code: int, seconds: float, resumable: bool = True, recorded: bool = False
) -> None:
  """Records the end of a run, and prints its result or the command that resumes it.

  Args:
    job: the job.
    code: its exit code.
    seconds: for which it ran.
    resumable: whether it is for the user to resume the run.
    recorded: whether the end has been recorded, by a launcher elsewhere.
  """
  if not recorded:
    run_end.record_end(job.run_dir, code, seconds)
  if code == 0:
    if done := run_end.result(job.run_dir):
      if note := evaluation_gap.remark(job.run_dir):
        streams.say(note, sys.stderr)
      streams.say(done)
    return
  if code in stop_requests.EXIT_CODES.values():
    streams.say(f'stopped: seconds={seconds:.1f} run_dir={job.run_dir}', sys.stderr)
  if resumable and job.remake is not None and run_directory.has_checkpoints(job.run_dir):
    command = map(_shown, (sys.executable, _LAUNCH))
    words = [*command, f'--resume={job.run_dir}', *job.launch_flags]
    streams.say(f'to resume: {shlex.join(words)}', sys.stderr)


def _shown(path: str) -> str:
  """Returns an absolute path, relative if it is below the working directory."""
  try:
    relative = os.path.relpath(path)
  except FileNotFoundError:  # The working directory has been removed.
    return path
  return path if relative.startswith(os.pardir) else relative
