"""The options of an optimizer. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from agents.networks.config import require, require_choice
from agents.options import CheckedOptions, option

MOST_STEPS = 2**31 - 1  # Of an optimizer's counter, int32.
SCHEDULES = ('constant', 'linear', 'cosine')


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(CheckedOptions):
  """Options of Adam, which RAdam shares, and RMSProp, of the rate over a run, and of clipping.

  Attributes:
    tunable: names of the options that may change while an agent learns; see `agents.tuned`. The agent
      only computes with them: no branch and no shape depends on their values.
  """

  tunable: ClassVar[tuple[str, ...]] = ('learning_rate',)

  optimizer: str = option(
    'adam', 'Optimizer: adam, radam or rmsprop; IMPALA uses rmsprop, PQN radam.'
  )
  learning_rate: float = option(
    6e-4,
    'Step size, before it decays; on Atari 6e-4 in IMPALA and 2.5e-4 in PPO.',
    above=0,
  )
  learning_rate_schedule: str = option(
    'constant', 'constant, or linear or cosine, which decay to 0 until learning_rate_decay_steps.'
  )
  learning_rate_decay_steps: int = option(
    0,
    'Learner steps after which a decaying learning rate is 0; 0: the updates that --dry_run prints, a '
    'lower bound where episodes are short; must be 0 with the constant schedule.',
  )
  learning_rate_warmup_steps: int = option(
    0,
    'Learner steps over which the learning rate first rises linearly; decay begins after them; 0 for '
    'none.',
    at_least=0,
  )
  adam_b1: float = option(0.9, "Decay of Adam's mean of gradients.", at_least=0, below=1)
  adam_b2: float = option(0.999, "Decay of Adam's mean of squared gradients.", at_least=0, below=1)
  adam_eps: float = option(
    1e-8, "Added to Adam's denominator; PPO's first implementation: 1e-5.", above=0
  )
  rmsprop_decay: float = option(
    0.99, "Decay of RMSProp's mean of squared gradients.", at_least=0, below=1
  )
  rmsprop_eps: float = option(
    0.01,
    "Added to RMSProp's mean of squares, or to its root; IMPALA on Atari: 0.01.",
    above=0,
  )
  rmsprop_eps_place: str = option(
    'inside',
    "Where RMSProp's epsilon stands: inside the root, as in TensorFlow and so in IMPALA, or outside, as "
    'in PyTorch. The mean of squares begins at 1 with inside, at 0 with outside.',
  )
  weight_decay: float = option(
    0.0,
    'Decoupled weight decay of adam (AdamW), as a share of the learning rate; 0 for none; MuZero '
    'Unplugged: 1e-4.',
    at_least=0,
  )
  max_gradient_norm: float = option(
    40.0,
    'Gradients are clipped to this global norm; 0 for no clipping; IMPALA: 40, for sums; PPO: 0.5.',
    at_least=0,
  )

  @property
  def gradient_steps_per_update(self) -> int:
    """Gradient steps in one learner step."""
    return 1

  def check_batch(self, flag: str, unrolls: int, num_devices: int, devices: str) -> None:
    """Checks that a learner batch divides as the agent needs it; an agent overrides it.

    Args:
      flag: the option that sets the size of the batch, without dashes.
      unrolls: in a batch.
      num_devices: devices over which it is sharded.
      devices: their name in the message.

    Raises:
      ValueError: it does not; one sentence that names the flags and the fix.
    """

  def _check(self) -> None:
    require_choice('optimizer', self.optimizer, ('adam', 'radam', 'rmsprop'))
    require_choice('learning_rate_schedule', self.learning_rate_schedule, SCHEDULES)
    require_choice('rmsprop_eps_place', self.rmsprop_eps_place, ('inside', 'outside'))
    if self.optimizer != 'adam':
      expected = '0, or use --optimizer=adam'
      require(self.weight_decay == 0.0, 'weight_decay', self.weight_decay, expected)
    steps, warmup = self.learning_rate_decay_steps, self.learning_rate_warmup_steps
    most = MOST_STEPS // self.gradient_steps_per_update
    require(warmup <= most, 'learning_rate_warmup_steps', warmup, f'at most {most}')
    require(steps <= most, 'learning_rate_decay_steps', steps, f'at most {most}')
    if self.learning_rate_schedule == 'constant':
      expected = '0, or set --learning_rate_schedule=linear'
      require(steps == 0, 'learning_rate_decay_steps', steps, expected)
    else:
      schedule = f'--learning_rate_schedule={self.learning_rate_schedule}'
      expected = f'the number of learner steps in which {schedule} ends'
      require(steps >= 1, 'learning_rate_decay_steps', steps, expected)
      expected = f'less than the {steps} learner steps in which {schedule} ends'
      require(warmup < steps, 'learning_rate_warmup_steps', warmup, expected)
