"""The config of programs with several learners, each with inference, actors and replay of its own."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from programs.options.inference import InferenceConfig

C = TypeVar('C', bound='SeparateLearnersConfig')


@dataclasses.dataclass(frozen=True)
class SeparateLearnersConfig(InferenceConfig):
  """Sebulba's parts once for each of several learners: a replica is a learner that trains apart.

  A subclass overrides `num_learners`, and names its option in `learners_flag`.
  """

  learners_flag = ''

  @property
  def forms_one_job(self) -> bool:
    """Whether the inference-learners are several replicas of one JAX job, which these are not."""
    return False

  def resolve(self: C) -> C:
    """Returns the config with a replica for each learner, and every 'choose for me' replaced."""
    found = super().resolve()
    given = found.inference.num_replicas
    replicas = self.num_learners if given == 1 else given
    inference = dataclasses.replace(found.inference, num_replicas=replicas)
    return dataclasses.replace(found, inference=inference)

  def _check(self) -> None:
    if self.num_replicas != self.num_learners:
      raise ValueError(
        f'--num_replicas={self.num_replicas} is for learners that average gradients; leave it out: '
        f'each of --{self.learners_flag}={self.num_learners} is a learner.'
      )

  def _check_inference_nodes(self) -> None:
    raise ValueError(
      f'--inference_nodes={self.inference.inference_nodes} is for a single learner, and there are '
      f'--{self.learners_flag}={self.num_learners}; leave it out.'
    )
