"""Default placement of groups."""

from __future__ import annotations

from typing import Any

from launchers.placement import Resources
from programs.options.common import CommonConfig

# One XLA thread on CPUs: action batches are small, so handing parts to other threads costs more than it
# saves, and every core runs a process already. XLA would compile for a GPU in one thread as well.
ONE_THREAD = {'NPROC': '1'}


def placement(**groups: Resources) -> dict[str, Resources]:
  """Returns the resources of the given groups, the monitor and the evaluator."""
  return {
    'monitor': Resources(cpus=0, with_launcher=True, restart='on_failure'),
    **groups,
    'evaluator': Resources(restart='on_failure', uses_run_dir=False),
  }


def restart_of_learner(config: CommonConfig) -> str:
  """Returns the restart policy of nodes with no saved state except the learner's checkpoints."""
  # Without checkpoints a restart would lose all that was learned.
  return 'on_failure' if config.run.checkpoint_period else 'never'


def on_accelerator(config: CommonConfig, num_devices: int, **others: Any) -> Resources:
  """Returns the resources of a group with `num_devices` accelerators, or CPUs if config has none."""
  if config.run.accelerator == 'cpu':
    return Resources(**others)
  return Resources(accelerator=config.run.accelerator, num_devices=num_devices, **others)
