"""The options that actor-critic agents share. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require, require_choice
from agents.options import option

SCHEDULES = ('constant', 'linear', 'cosine')


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig(NetworkConfig):
  """Options of the agents that learn a policy and its value from unrolls: V-trace and PPO."""

  continuous_actions = True

  unroll_length: int = option(
    20, 'Transitions in an unroll; an unroll has one row more, which only bootstraps.'
  )
  discount: float = option(0.99, 'Discount gamma per environment step.')
  rho_bar: float = option(
    1.0, 'Clip of the importance weight of each temporal difference; determines the fixed point.'
  )
  c_bar: float = option(
    1.0,
    'Clip of the importance weights that trace later differences back; determines the variance.',
  )
  baseline_cost: float = option(0.5, 'Weight of the baseline loss, itself half a squared error.')
  entropy_cost: float = option(0.01, 'Weight of the entropy bonus, entropy in nats.')
  reward_scale: float = option(1.0, 'Factor of the rewards in the loss, before clipping.')
  max_abs_reward: float = option(
    0.0, 'Clip rewards to plus or minus this in the loss; 0 for no clipping; IMPALA on Atari: 1.'
  )
  normalize_rewards: bool = option(
    False,
    'Whether the loss first divides rewards by the running standard deviation of the discounted return '
    'and clips them to [-10, 10], as in PPO on MuJoCo.',
  )
  normalize_observations: bool = option(
    False,
    'Whether networks receive each element of an observation with its running mean subtracted, over its '
    'running standard deviation, clipped to [-10, 10], as in PPO on MuJoCo; not for uint8.',
  )
  separate_critic: bool = option(
    False, 'Whether the value has a torso of its own, as in PPO on MuJoCo; needs --core=none.'
  )
  policy_std: str = option(
    'state',
    'Standard deviation of continuous actions: state, which the network outputs for actions squashed '
    'by tanh, or free, which no state changes, for clipped actions as in PPO on MuJoCo.',
  )
  optimizer: str = option('adam', 'Optimizer: adam or rmsprop; IMPALA uses rmsprop.')
  learning_rate: float = option(
    6e-4, 'Step size, before it decays; on Atari 6e-4 in IMPALA and 2.5e-4 in PPO.'
  )
  learning_rate_schedule: str = option(
    'constant', 'constant, or linear or cosine, which decay to 0 until learning_rate_decay_steps.'
  )
  learning_rate_decay_steps: int = option(
    0,
    'Learner steps after which a decaying learning rate is 0; 0: about all of the run; must be 0 with '
    'the constant schedule.',
  )
  learning_rate_warmup_steps: int = option(
    0,
    'Learner steps over which the learning rate first rises linearly; decay begins after them; 0 for '
    'none.',
  )
  adam_b1: float = option(0.9, "Decay of Adam's mean of gradients.")
  adam_b2: float = option(0.999, "Decay of Adam's mean of squared gradients.")
  adam_eps: float = option(1e-8, "Added to Adam's denominator; PPO's first implementation: 1e-5.")
  rmsprop_decay: float = option(0.99, "Decay of RMSProp's mean of squared gradients.")
  rmsprop_eps: float = option(
    0.01, "Added to RMSProp's mean of squares, or to its root; IMPALA on Atari: 0.01."
  )
  rmsprop_eps_place: str = option(
    'inside',
    "Where RMSProp's epsilon stands: inside the root, as in TensorFlow and so in IMPALA, or outside, as "
    'in PyTorch.',
  )
  max_gradient_norm: float = option(
    40.0,
    'Gradients are clipped to this global norm; 0 for no clipping; IMPALA: 40, for sums; PPO: 0.5.',
  )

  def _check(self) -> None:
    require_choice('optimizer', self.optimizer, ('adam', 'rmsprop'))
    require_choice('learning_rate_schedule', self.learning_rate_schedule, SCHEDULES)
    require_choice('rmsprop_eps_place', self.rmsprop_eps_place, ('inside', 'outside'))
    require_choice('policy_std', self.policy_std, ('state', 'free'))
    if self.separate_critic:
      require(self.core == 'none', 'core', self.core, 'none, or leave --separate_critic out')
    require(self.unroll_length >= 1, 'unroll_length', self.unroll_length, 'at least 1')
    for name in ('discount', 'adam_b1', 'adam_b2', 'rmsprop_decay'):
      value = getattr(self, name)
      require(0.0 <= value <= 1.0, name, value, 'a number from 0 to 1')
    for name in ('rho_bar', 'c_bar', 'reward_scale', 'learning_rate', 'adam_eps', 'rmsprop_eps'):
      value = getattr(self, name)
      require(value > 0.0, name, value, 'a number above 0')
    for name in ('baseline_cost', 'entropy_cost', 'max_abs_reward', 'max_gradient_norm'):
      value = getattr(self, name)
      require(value >= 0.0, name, value, '0 or more')
    require(
      self.rho_bar >= self.c_bar, 'rho_bar', self.rho_bar, f'at least --c_bar, {self.c_bar!r}'
    )
    steps, warmup = self.learning_rate_decay_steps, self.learning_rate_warmup_steps
    require(warmup >= 0, 'learning_rate_warmup_steps', warmup, '0 for none, or more')
    if self.learning_rate_schedule == 'constant':
      expected = '0, or set --learning_rate_schedule=linear'
      require(steps == 0, 'learning_rate_decay_steps', steps, expected)
    else:
      schedule = f'--learning_rate_schedule={self.learning_rate_schedule}'
      expected = f'the number of learner steps in which {schedule} ends'
      require(steps >= 1, 'learning_rate_decay_steps', steps, expected)
      expected = f'less than the {steps} learner steps in which {schedule} ends'
      require(warmup < steps, 'learning_rate_warmup_steps', warmup, expected)
