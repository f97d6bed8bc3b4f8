"""Where groups run by default."""

from __future__ import annotations

from typing import Any

from launchers.placement import Resources
from programs.options.common import CommonConfig
from programs.options.inference import InferenceConfig

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


def of_inference(config: InferenceConfig) -> dict[str, Resources]:
  """Returns where inference and learner run, together or apart."""
  restart = restart_of_learner(config)
  actor_devices, learner_devices = config.actor_devices, config.learner_devices
  if config.inference_nodes:
    return {
      'inference': on_accelerator(
        config, 1 + max(actor_devices), restart='on_failure', env=ONE_THREAD
      ),
      'learner': on_accelerator(config, 1 + max(learner_devices), restart=restart),
    }
  num_devices = 1 + max(actor_devices + learner_devices)
  if config.num_replicas == 1:
    return {'inference_learner': on_accelerator(config, num_devices, restart=restart)}
  return {'inference_learner': on_accelerator(config, num_devices, restart='never', one_job=True)}
