"""The options of PPO. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.actor_critic.config import ActorCriticConfig
from agents.minibatches_config import MinibatchesConfig
from agents.networks.config import require, require_choice
from agents.options import option


@dataclasses.dataclass(frozen=True)
class PPOConfig(ActorCriticConfig, MinibatchesConfig):
  """Proximal policy optimization with a clipped ratio (Schulman et al. 2017)."""

  tunable = (*ActorCriticConfig.tunable, 'clip_ratio', 'gae_lambda')

  unroll_length: int = 128
  learning_rate: float = 2.5e-4
  adam_eps: float = 1e-5
  max_gradient_norm: float = 0.5
  minibatch_of: str = option(
    'unrolls',
    'What a minibatch is made of: unrolls, or single transitions, which need --core=none.',
  )
  clip_ratio: float = option(
    0.2,
    'Clip of pi/mu to 1 plus or minus this; 0.1 on Atari, where the paper decays it.',
    above=0,
  )
  clip_value: float = option(
    0.0,
    'Clip of the change of a value in one learner step, in units of the scaled return; 0 for none.',
    at_least=0,
  )
  normalize_advantages: bool = option(
    True, 'Whether advantages have mean 0 and standard deviation 1 in each minibatch.'
  )
  gae_lambda: float = option(
    0.95, 'Lambda in [0, 1] of generalized advantage estimation.', at_least=0, at_most=1
  )
  off_policy_correction: str = option(
    'none',
    'What values and advantages assume of stale data: none, that the current policy acted, or vtrace, '
    'which weighs later differences by clipped importance weights.',
  )

  @property
  def minibatches_of_unrolls(self) -> bool:
    """Whether minibatches have whole unrolls; see the base class."""
    return self.minibatch_of == 'unrolls'

  def check_batch(self, flag: str, unrolls: int, num_devices: int, devices: str) -> None:
    """Checks that a batch divides into equal minibatches on every device; see `OptimizerConfig`."""
    super().check_batch(flag, unrolls, num_devices, devices)
    transitions = unrolls * self.unroll_length // self.num_minibatches
    if self.normalize_advantages and transitions == 1:
      raise ValueError(
        f'--num_minibatches={self.num_minibatches} leaves one transition in each minibatch, whose '
        'normalised advantage is 0; lower it, or add --nonormalize_advantages.'
      )

  def _check(self) -> None:
    require_choice('minibatch_of', self.minibatch_of, ('unrolls', 'transitions'))
    require_choice('off_policy_correction', self.off_policy_correction, ('none', 'vtrace'))
    if self.off_policy_correction == 'none':
      for name in ('rho_bar', 'c_bar'):
        value = getattr(self, name)
        require(value == 1.0, name, value, '1.0, or add --off_policy_correction=vtrace')
    if self.minibatch_of == 'transitions':
      expected = 'none with --minibatch_of=transitions, or use --minibatch_of=unrolls'
      require(self.core == 'none', 'core', self.core, expected)
