"""The engines for this machine: `Local` runs a process per node, `Threads` runs the nodes as threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from launchers import own_python, streams
from launchers.engine import Engine, Job
from launchers.local import accelerators, capacity, isolation, local_mp, threads
from launchers.options import option
from launchers.supervise import RunCallbacks

_ONE_PYTHON = (
  '--lp_launch_type=local_mt runs every node with the interpreter of launch.py; use local_mp.'
)


@dataclasses.dataclass(frozen=True)
class Local(Engine):
  """Runs a graph on this machine, one process per node.

  Attributes:
    isolate: see `isolation.fork_server`.
  """

  isolate: str = option(
    'auto',
    'whether a local run gets its own network namespace, so that its nodes and other processes cannot '
    'connect to each other: auto: if the system allows it and no TPU is used; require: fail otherwise; '
    'no',
    flag='isolate',
    choices=isolation.MODES,
  )

  on_this_machine = True

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError for groups that one machine cannot run; warns about too few cores."""
    capacity.check(job.program, job.placement, one_process=not self.sends_nodes)
    if self.sends_nodes:
      capacity.check_files(job.program)
    crowding = capacity.crowding(job.program, job.placement)
    return [crowding] if crowding else []

  def place(self, job: Job) -> Job:
    """Chooses the GPUs of the groups."""
    sizes = {label: len(nodes) for label, nodes in job.program.groups.items()}
    job = dataclasses.replace(job, placement=accelerators.assigned(job.placement, sizes))
    if chosen := accelerators.describe(job.placement):
      streams.say(chosen)
    return job

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Starts the processes, and supervises them."""
    return local_mp.launch(
      job.program,
      job.placement,
      job.run_dir,
      callbacks=callbacks,
      node_timeout=job.node_timeout,
      isolate=self.isolate,
    )


@dataclasses.dataclass(frozen=True)
class Threads(Local):
  """Runs a graph in this process, where a debugger sees every node: --lp_launch_type=local_mt.

  Launchpad runs the threads. They have no heartbeat, restarts or logs of their own.
  """

  refuses = {
    'actor_python': _ONE_PYTHON,
    'node_output': '--node_output is for --lp_launch_type=local_mp; with local_mt the nodes print to '
    'the terminal themselves.',
  }
  sends_nodes = False

  def check(self, job: Job, dry_run: bool) -> Sequence[str]:
    """Raises ValueError for groups that one process cannot run; warns about too few cores."""
    own_python.refuse(job.placement, _ONE_PYTHON)
    if self.isolate == 'require':
      raise ValueError(
        '--isolate=require is for a process per node; use --lp_launch_type=local_mp, or leave --isolate '
        'out.'
      )
    return super().check(job, dry_run)

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Starts the threads, and waits for them."""
    isolation.warn_of_threads(self.isolate, job.placement)
    return threads.launch(job.program, callbacks)
