"""Names of the groups that infer and learn: one group, or two with --inference_nodes."""

from __future__ import annotations

from programs.options.inference import InferenceConfig


def infers(config: InferenceConfig) -> str:
  """Returns the name of the group that serves actions to actors."""
  return 'inference' if config.inference.inference_nodes else 'inference_learner'


def learns(config: InferenceConfig) -> str:
  """Returns the name of the group that learns."""
  return 'learner' if config.inference.inference_nodes else 'inference_learner'
