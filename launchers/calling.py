"""`launchers.launch`: runs a Launchpad program from a `main` of the user's own, in place of `lp.launch`.

It defines no flags, so it fits into a program with flags of its own. Each engine has a module `call`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import launchpad as lp

from environments import errors
from launchers import own_python, placement, stop_requests, streams, terminal
from launchers.engine import LONGEST_SECONDS, Job, record
from launchers.graph import check
from launchers.node_output import FILES, TERMINAL
from launchers.placement import Resources
from rundir import run_directory, run_end

_ENGINES = 'local', 'ray', 'slurm'
_OUTPUTS = FILES, TERMINAL
_INSTEAD = {
  'k8s': '; put make_program() into a file, and run launch.py --launcher=k8s --program=FILE',
  'local_mt': '; use lp.launch for the launch types of Launchpad',
}


@dataclasses.dataclass(frozen=True)
class _Config:
  run_dir: str


def launch(
  program: lp.Program,
  *,
  launcher: str = 'local',
  resources: Mapping[str, Resources] | None = None,
  run_dir: str = '',
  node_output: str = TERMINAL,
  node_timeout: float = 300.0,
  **engine_options: Any,
) -> int:
  """Runs a program to completion, as launch.py does; call it from the main thread.

  Every node's output goes to `run_dir/logs`. Nodes restart as their `Resources` allow. The program ends
  when every node has returned, or a node calls `lp.stop()`. It also ends when a node fails with no
  restart left, and on a signal such as Ctrl-C. watch.py shows the run directory.

  Args:
    program: the graph.
    launcher: 'local', 'ray' or 'slurm'.
    resources: `launchers.placement.Resources` of groups, by label; other groups are CPU workers without
      restarts.
    run_dir: a directory that does not exist or is empty; '' for a new one in `runs/`.
    node_output: 'terminal' to show the lines of the nodes in the terminal too; 'files' for their logs
      alone.
    node_timeout: seconds without a heartbeat, or without progress, after which a node is killed.
    **engine_options: flags of the launcher without their dashes. Of 'local': `isolate`, 'no' by
      default; with 'auto' or 'require', this process executes its command again from the start. Of
      'ray': `ray_address` and `ray_timeout`. Of 'slurm': `slurm_cpu_nodes`, `slurm_options`,
      `slurm_accelerator_options`, `slurm_cpu_options` and `slurm_requeue`.

  Returns:
    The exit code: 0; 1 if a node failed, with the end of its log on stderr; 130 after Ctrl-C, 143 after
    SIGTERM, 129 after SIGHUP.

  Raises:
    TypeError: if an argument has another type, or is not an option of the launcher.
    ValueError: if the graph, the resources or the run directory cannot be used, or the cluster cannot
      run the program; one sentence, or one line for each problem of the graph. No node has started then.
  """
  _check_arguments(program, launcher, node_output, node_timeout)
  engine = importlib.import_module(f'launchers.{launcher}.call')
  _check_options(launcher, engine.OPTIONS, engine_options)
  placed = _placed(program, dict(resources or {}))
  problems = [*check.problems(program, placed)] or [*own_python.problems(program, placed)]
  if problems:
    raise ValueError('\n'.join(problems))
  path = run_directory.absolute(run_dir or run_directory.default_path(program.name, ''))
  job = Job(program.name, program, placed, {}, _Config(path), False, node_timeout, node_output)
  job = engine.prepared(job, engine_options)
  os.environ.update(placement.NO_PROXY)
  run_directory.create(path)
  began = time.monotonic()
  try:
    record(job)
    with terminal.shown(program, job.title, path, node_output) as callbacks:
      code = engine.launch(job, callbacks, engine_options)
  except ValueError:
    run_directory.delete_rejected(path)
    raise
  # A launcher in the cluster has recorded and printed the end itself.
  if run_end.end_of(path) is None:
    run_end.record_end(path, code, time.monotonic() - began)
    if code == 0:
      streams.say(run_end.result(path))
    elif code in stop_requests.EXIT_CODES.values():
      streams.say(f'stopped: run_dir={path}', sys.stderr)
  return code


def _check_arguments(
  program: lp.Program, launcher: str, node_output: str, node_timeout: float
) -> None:
  """Raises TypeError or ValueError, one sentence, for arguments that are not as `launch` says."""
  if not isinstance(program, lp.Program):
    raise TypeError(f'launch needs an lp.Program, not a {type(program).__name__}.')
  if launcher not in _ENGINES:
    hint = _INSTEAD.get(launcher, '')
    raise ValueError(f'launcher={launcher!r} is none of {", ".join(_ENGINES)}{hint}.')
  if node_output not in _OUTPUTS:
    raise ValueError(f'node_output={node_output!r} is none of {", ".join(_OUTPUTS)}.')
  if not (isinstance(node_timeout, int | float) and 1.0 <= node_timeout <= LONGEST_SECONDS):
    raise ValueError(
      f'node_timeout={node_timeout!r} must be a number of seconds from 1 to {LONGEST_SECONDS:g}.'
    )
  if threading.current_thread() is not threading.main_thread():
    raise ValueError('launch handles signals, so call it from the main thread.')


def _check_options(
  launcher: str, known: Mapping[str, tuple[type, ...]], given: Mapping[str, Any]
) -> None:
  """Raises TypeError, one sentence, for options that the engine does not have, or of another type."""
  for name, value in given.items():
    if name not in known:
      near = errors.did_you_mean(name, [*known, 'launcher', 'resources', 'run_dir'])
      hint = near or f'; it has {", ".join(known)}.'
      raise TypeError(f'{name} is not an option of launcher={launcher!r}{hint}')
    if not isinstance(value, known[name]) or (isinstance(value, bool) and bool not in known[name]):
      wanted = ' or '.join(kind.__name__ for kind in known[name])
      raise TypeError(f'{name}={value!r} must be of type {wanted}.')


def _placed(program: lp.Program, resources: dict[str, Resources]) -> dict[str, Resources]:
  """Returns resources for every group.

  Raises:
    TypeError: if a value is not `Resources`.
    ValueError: if there is no such group; one sentence.
  """
  for label, value in resources.items():
    if label not in program.groups:
      raise ValueError(
        f'resources: there is no group {label!r}; there are: {", ".join(program.groups)}.'
      )
    if not isinstance(value, Resources):
      raise TypeError(
        f'resources: group {label!r} has a {type(value).__name__}, not a launchers.placement.Resources.'
      )
  return {label: Resources() for label in program.groups} | resources
