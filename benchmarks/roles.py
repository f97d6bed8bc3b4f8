"""Names of the groups that act, infer and learn, some of which may be the same."""

from __future__ import annotations

from programs.options.inference import InferenceConfig


def acts(config: InferenceConfig) -> str:
  """Returns the name of the group whose processes step the environments."""
  return infers(config) if config.acting.actors_as_threads else 'actor'


def infers(config: InferenceConfig) -> str:
  """Returns the name of the group that serves actions to actors."""
  return 'inference' if config.inference.inference_nodes else 'inference_learner'


def learns(config: InferenceConfig) -> str:
  """Returns the name of the group that learns."""
  return 'learner' if config.inference.inference_nodes else 'inference_learner'
