"""The options of R2D2. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses

from agents.networks.config import NetworkConfig, require, require_choice
from agents.optimizer_config import OptimizerConfig
from agents.options import option
from agents.priorities_config import PrioritiesConfig
from agents.q_learning.config import EpsilonConfig

REPLAY_STATES = ('stored', 'zero')


@dataclasses.dataclass(frozen=True)
class R2D2Config(EpsilonConfig, OptimizerConfig, PrioritiesConfig, NetworkConfig):
  """R2D2 (Kapturowski et al. 2019), recurrent Q-learning from prioritized replay.

  The defaults are those of SEED RL (Espeholt et al. 2020) on Atari, from its published launch script.
  Where the script and the defaults of SEED's flags disagree, the script decides: it names the
  experiment and agrees with R2D2's table of hyper-parameters. It has learning rate 1e-4 (flag: 4.8e-4)
  and gradient norm 80, of losses summed over an unroll (flag: 40; R2D2 gives none). R2D2's Adam has
  epsilon 1e-3. The review version of R2D2 had no importance weights; its final version and SEED use
  them, with exponent 0.6. Replay options (sizes, the priority exponent, samples per insert) are in
  `programs.options.prioritized`.
  """

  tunable = (*OptimizerConfig.tunable, 'discount')

  core: str = option('lstm', 'Memory over time: lstm, gru, lru, or none as a feed-forward control.')
  core_size: int = 512
  clip_reward_input: bool = option(
    False, 'Whether the core sees the previous reward clipped to [-1, 1]; R2D2 leaves it raw.'
  )
  head_size: int = option(
    512, 'Units in the hidden layer of each stream of the dueling head.', at_least=1
  )
  burn_in: int = option(
    40,
    'Rows at the start of an unroll that only refresh the stored core state with the current '
    'parameters; 0 for none.',
    at_least=0,
  )
  unroll_length: int = option(
    80,
    'Transitions of an unroll that are trained on; an unroll has --burn_in rows before them and '
    'one after, which only bootstraps.',
    at_least=1,
  )
  replay_state: str = option(
    'stored',
    'Core state at the start of a replayed unroll: stored, that with which it was played, or zero, '
    'that at the start of an episode.',
  )
  n_step: int = option(
    5, 'Transitions before a target bootstraps; fewer where an unroll ends.', at_least=1
  )
  discount: float = option(0.997, 'Discount gamma per environment step.', at_least=0, at_most=1)
  target_update_period: int = option(
    2500,
    'Learner steps between copies of the online network to the target network.',
    at_least=1,
  )
  evaluation_epsilon: float = 1e-3
  learning_rate: float = 1e-4
  adam_eps: float = 1e-3
  max_gradient_norm: float = 80.0

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: the burn-in before its transitions, and one after them that only bootstraps."""
    return self.burn_in + self.unroll_length + 1

  def _check(self) -> None:
    require_choice('replay_state', self.replay_state, REPLAY_STATES)
    expected = f'at most --unroll_length, {self.unroll_length!r}'
    require(self.n_step <= self.unroll_length, 'n_step', self.n_step, expected)
