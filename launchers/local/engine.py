"""The engine for this machine: one process per node, or one of Launchpad's own launch types."""

from __future__ import annotations

from collections.abc import Sequence

import launchpad as lp
from absl import flags

from launchers.engine import Engine, Job
from launchers.local import builtin, call, capacity, isolation
from launchers.supervise import RunCallbacks

_ISOLATE = flags.DEFINE_enum(
  'isolate',
  'auto',
  isolation.MODES,
  'whether a local run gets its own network namespace, so that its nodes and other processes cannot '
  'connect to each other: auto: if the system allows it and no TPU is used; require: fail otherwise; no',
)
flags.FLAGS.set_default('lp_launch_type', 'local_mp')
FOREIGN_FLAGS = ('lp_launch_type',)  # Which Launchpad defines.
_THREADS = ('local_mt', 'test_mt')
_TYPES = ('local_mp', *_THREADS, 'test_mp')


def refuse_flags(launcher: str) -> None:
  """Rejects flags of this engine when another one is selected.

  Args:
    launcher: name of the other engine.

  Raises:
    ValueError: if such a flag is given; one sentence.
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


class Local(Engine):
  """Runs a graph on this machine."""

  on_this_machine = True

  @property
  def pickles_nodes(self) -> bool:
    """False for launch types that run nodes as threads."""
    return lp.LAUNCH_TYPE.value not in _THREADS

  @property
  def python_refusal(self) -> str:
    """Launchpad's own launch types run nodes with the interpreter of the launcher."""
    if lp.LAUNCH_TYPE.value == 'local_mp':
      return ''
    return (
      f'--lp_launch_type={lp.LAUNCH_TYPE.value} runs every node with the interpreter of launch.py; use '
      'local_mp.'
    )

  @property
  def profiles_nodes(self) -> bool:
    """Launchpad's own launch types have processes of their own."""
    return lp.LAUNCH_TYPE.value == 'local_mp'

  @property
  def node_output_refusal(self) -> str:
    """Launchpad's own launch types print the output of nodes themselves."""
    if lp.LAUNCH_TYPE.value == 'local_mp':
      return ''
    return (
      f'--node_output is for --lp_launch_type=local_mp; with {lp.LAUNCH_TYPE.value} Launchpad prints '
      'the output of nodes itself.'
    )

  def check(self, job: Job, dry_run: bool) -> None:
    """Raises ValueError for other launch types, or for groups that one machine cannot run."""
    if lp.LAUNCH_TYPE.value not in _TYPES:
      raise ValueError(
        f'--lp_launch_type={lp.LAUNCH_TYPE.value} is not supported; use {", ".join(_TYPES)}, or '
        '--launcher.'
      )
    capacity.check(job.placement, one_process=not self.pickles_nodes)

  def claim(self, job: Job) -> Job:
    """Enters a network namespace and chooses GPUs first."""
    return super().claim(call.placed(job, _ISOLATE.value))

  def warnings(self, job: Job) -> Sequence[str]:
    """Adds a warning about too few cores."""
    crowding = capacity.crowding(job.program, job.placement)
    return [*([crowding] if crowding else []), *job.warnings]

  def launch(self, job: Job, callbacks: RunCallbacks) -> int:
    """Runs a job under the launch type of --lp_launch_type."""
    launch_type = lp.LAUNCH_TYPE.value
    if launch_type == 'local_mp':
      return call.launch(job, callbacks, {})
    return builtin.launch(job.program, launch_type, job.placement, started=callbacks.started)
