"""Which groups of a program infer and learn: one, or, with --inference_nodes, two."""

from __future__ import annotations

from programs.options.inference import InferenceConfig


def infers(config: InferenceConfig) -> str:
  """Returns the name of the group that answers actors."""
  return 'inference' if config.inference_nodes else 'inference_learner'


def learns(config: InferenceConfig) -> str:
  """Returns the name of the group that learns."""
  return 'learner' if config.inference_nodes else 'inference_learner'
