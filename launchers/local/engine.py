"""The engine for this machine: a process for each node, or Launchpad's own launch types."""

from __future__ import annotations

from collections.abc import Sequence

import launchpad as lp
from absl import flags

from launchers.launcher import Job, Launcher
from launchers.local import builtin, capacity, isolation, local_mp
from launchers.supervise import RunCallbacks

_ISOLATE = flags.DEFINE_enum(
  'isolate',
  'auto',
  isolation.MODES,
  'whether a local run gets a network of its own, so that its nodes and other processes do not reach '
  'each other: auto, where the system allows it and no TPU is used; require, or refuse to run; no',
)
flags.FLAGS.set_default('lp_launch_type', 'local_mp')
_THREADS = ('local_mt', 'test_mt')


def refuse_flags(launcher: str) -> None:
  """Refuses the flags of this engine beside another one.

  Args:
    launcher: the other.

  Raises:
    ValueError: if one of them is given; one sentence.
  """
  if flags.FLAGS['lp_launch_type'].present:
    raise ValueError(
      f'--lp_launch_type is for --launcher=local; leave it out with --launcher={launcher}.'
    )
  if _ISOLATE.value == 'require':
    raise ValueError(
      f'--isolate=require is for --launcher=local; leave it out with --launcher={launcher}, '
      'and see SECURITY.md.'
    )


class Local(Launcher):
  """Runs a graph on this machine."""

  @property
  def pickles_nodes(self) -> bool:
    """False for launch types that run nodes as threads."""
    return lp.LAUNCH_TYPE.value not in _THREADS

  def check(self, job: Job, dry_run: bool) -> None:
    """Refuses groups that one machine cannot hold."""
    capacity.check(job.placement, one_process=not self.pickles_nodes)

  def claim(self, job: Job) -> None:
    """Enters a network namespace first, for which launch.py may start again in this process."""
    isolation.enter(_ISOLATE.value, job.placement)
    super().claim(job)

  def warnings(self, job: Job) -> Sequence[str]:
    """Warns of too few cores, too."""
    crowding = capacity.crowding(job.program, job.placement)
    return [*([crowding] if crowding else []), *job.warnings]

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs a job under the launch type of the flag."""
    launch_type = lp.LAUNCH_TYPE.value
    if launch_type == 'local_mp':
      return local_mp.launch(
        job.program,
        job.placement,
        job.run_dir,
        callbacks=callbacks,
        node_timeout=job.node_timeout,
      )
    return builtin.launch(job.program, launch_type, job.placement, started=callbacks.started)
