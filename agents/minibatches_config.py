"""The options of agents that learn from minibatches of a batch. Imports no JAX."""

from __future__ import annotations

import dataclasses

from agents.optimizer_config import OptimizerConfig
from agents.options import option


@dataclasses.dataclass(frozen=True)
class MinibatchesConfig(OptimizerConfig):
  """Options of the passes over a batch, in minibatches, that are one learner step of PPO and PQN."""

  num_epochs: int = option(4, 'Passes over the batch in one learner step.', at_least=1)
  num_minibatches: int = option(
    4,
    'Gradient steps of one pass; the minibatches are equal parts of the batch.',
    at_least=1,
  )

  @property
  def gradient_steps_per_update(self) -> int:
    """Gradient steps in one learner step."""
    return self.num_epochs * self.num_minibatches

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: one after its transitions only bootstraps."""
    raise NotImplementedError

  @property
  def minibatches_of_unrolls(self) -> bool:
    """Whether minibatches have whole unrolls, as a core needs; otherwise they have transitions."""
    raise NotImplementedError

  def samples(self, unrolls: int) -> tuple[int, str]:
    """Returns how many samples a batch has, of which minibatches are made, and what they are.

    Args:
      unrolls: in the batch.
    """
    if self.minibatches_of_unrolls:
      return unrolls, 'unrolls'
    return unrolls * (self.unroll_rows - 1), 'transitions'

  def check_batch(self, flag: str, unrolls: int, num_devices: int, devices: str) -> None:
    """Checks that a batch divides into equal minibatches on every device; see `OptimizerConfig`."""
    del devices
    samples, what = self.samples(unrolls)
    if samples % (num_devices * self.num_minibatches):
      raise ValueError(
        f'--num_minibatches={self.num_minibatches} does not divide the {samples} {what} of '
        f'--{flag}={unrolls} on {num_devices} learner device(s) equally; change one of them.'
      )
