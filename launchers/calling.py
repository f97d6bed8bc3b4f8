"""`launchers.launch`: runs a Launchpad program from a `main` of the user's own, in place of `lp.launch`.

It defines no flags, so it fits into a program with flags of its own.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Mapping

import launchpad as lp

from launchers import own_python, placement
from launchers.engine import Engine, Job
from launchers.engines import Local
from launchers.graph import check
from launchers.node_output import FILES, TERMINAL
from launchers.options import LONGEST_SECONDS
from launchers.placement import Resources
from rundir import run_directory

_OUTPUTS = FILES, TERMINAL
_DEFAULT = Local()


def launch(
  program: lp.Program,
  engine: Engine = _DEFAULT,
  *,
  resources: Mapping[str, Resources] | None = None,
  run_dir: str = '',
  node_output: str = TERMINAL,
  node_timeout: float = 300.0,
) -> int:
  """Runs a program to completion, as launch.py does; call it from the main thread.

  Every node's output goes to `run_dir/logs`. Nodes restart as their `Resources` allow. The program ends
  when every node has returned, or a node calls `lp.stop()`. It also ends when a node fails with no
  restart left, and on a signal such as Ctrl-C. watch.py shows the run directory.

  Args:
    program: the graph.
    engine: where it runs: `Local`, `Ray`, `Slurm` or `Threads` of `launchers.engines`, with the options
      that are launch.py's flags. By default this machine, without a network of its own, for which
      `Local()` executes the command of this process again from the start.
    resources: `launchers.placement.Resources` of groups, by label; other groups are CPU workers without
      restarts.
    run_dir: a directory that does not exist or is empty; '' for a new one in `runs/`.
    node_output: 'terminal' to show the lines of the nodes in the terminal too; 'files' for their logs
      alone.
    node_timeout: seconds without a heartbeat, or without progress, after which a node is killed.

  Returns:
    The exit code: 0; 1 if a node failed, with the end of its log on stderr; 130 after Ctrl-C, 143 after
    SIGTERM, 129 after SIGHUP. `Threads` takes SIGTERM for a call of `lp.stop()`.

  Raises:
    TypeError: if an argument has another type.
    ValueError: if the graph, the resources or the run directory cannot be used, or the engine cannot
      run the program; one sentence, or one line for each problem of the graph. No node has started then.
  """
  _check_arguments(program, engine, node_output, node_timeout)
  placed = _placed(program, dict(resources or {}))
  problems = [*check.problems(program, placed, engine.sends_nodes)]
  if engine.sends_nodes and not problems:
    problems = [*own_python.problems(program, placed)]
  if problems:
    raise ValueError('\n'.join(problems))
  path = run_directory.absolute(run_dir or run_directory.default_path(program.name, ''))
  job = Job(
    name=program.name,
    program=program,
    placement=placed,
    given={},
    config={'run_dir': path},
    node_timeout=node_timeout,
    node_output=FILES if 'node_output' in engine.refuses else node_output,
  )
  job = dataclasses.replace(job, warnings=engine.check(job, dry_run=False))
  os.environ.update(placement.NO_PROXY)
  return engine.start(job)


def _check_arguments(
  program: lp.Program, engine: Engine, node_output: str, node_timeout: float
) -> None:
  """Raises TypeError or ValueError, one sentence, for arguments that are not as `launch` says."""
  if not isinstance(program, lp.Program):
    raise TypeError(f'launch needs an lp.Program, not a {type(program).__name__}.')
  if not isinstance(engine, Engine):
    raise TypeError(f'launch needs an engine such as launchers.engines.Slurm(), not {engine!r}.')
  if not engine.sends_files:
    raise ValueError(
      f'{type(engine).__name__} runs what each process of its cluster builds itself; put make_program() '
      'into a file, and run launch.py --program=FILE with --launcher=k8s or skypilot.'
    )
  if node_output not in _OUTPUTS:
    raise ValueError(f'node_output={node_output!r} is none of {", ".join(_OUTPUTS)}.')
  if not (isinstance(node_timeout, int | float) and 1.0 <= node_timeout <= LONGEST_SECONDS):
    raise ValueError(
      f'node_timeout={node_timeout!r} must be a number of seconds from 1 to {LONGEST_SECONDS:g}.'
    )
  if threading.current_thread() is not threading.main_thread():
    raise ValueError('launch handles signals, so call it from the main thread.')


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
