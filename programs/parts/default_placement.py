"""Where groups run by default."""

from __future__ import annotations

from typing import Any

from launchers.placement import Resources
from programs.options.common import CommonConfig

# For XLA on CPUs: batches of actions are small, handing parts of them to other threads costs more
# than it brings, and every core has a process anyway.
ONE_THREAD = {'NPROC': '1'}


def placement(**groups: Resources) -> dict[str, Resources]:
  """Returns where the groups run: those given, and monitor and evaluator."""
  return {
    # The monitor writes the run directory.
    'monitor': Resources(cpus=0, with_launcher=True, restart='on_failure'),
    **groups,
    'evaluator': Resources(restart='on_failure'),
  }


def restart_of_learner(config: CommonConfig) -> str:
  """Returns the restart policy of nodes whose state is in the learner's checkpoints, or nowhere."""
  # What it would forget without checkpoints keeps the learner from being started again.
  return 'on_failure' if config.checkpoint_period else 'never'


def on_accelerator(config: CommonConfig, num_devices: int, **others: Any) -> Resources:
  """Returns where a group runs that has `num_devices` of the accelerators, where there are some."""
  if config.accelerator == 'cpu':
    return Resources(**others)
  return Resources(accelerator=config.accelerator, num_devices=num_devices, **others)
