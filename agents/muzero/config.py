"""The options of MuZero. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from agents.networks.config import TorsoConfig, require, require_choice
from agents.optimizer_config import MOST_STEPS, OptimizerConfig
from agents.options import option
from agents.priorities_config import PrioritiesConfig

MODELS = ('auto', 'mlp', 'torso', 'conv', 'residual')
SEARCHES = ('gumbel', 'puct')
SEARCH_VALUES = ('mean', 'chosen', 'network')
BOOTSTRAPS = ('target', 'search')


@dataclasses.dataclass(frozen=True)
class MuZeroConfig(OptimizerConfig, PrioritiesConfig, TorsoConfig):
  """MuZero: a learned model, and a search in it, from prioritized replay.

  In the options' texts MuZero is Schrittwieser et al. (2020) on Atari, Unplugged is Schrittwieser et al.
  (2021), whose appendix also has the values of MuZero Reanalyze, and Gumbel MuZero is Danihelka et al.
  (2022). The defaults are theirs where they agree. Replay options are in `programs.options.prioritized`.

  Attributes:
    action_kinds: those that the agent takes, of `agents.spaces`; a property of it, not an option.
  """

  action_kinds: ClassVar[tuple[str, ...]] = ('discrete',)

  model: str = option(
    'auto',
    'Networks: mlp; torso, that of --torso, then the dynamics of mlp; conv, residual blocks at the size '
    'of the image; residual, the tower of MuZero with the layer normalisation of Unplugged, which first '
    'shrinks the image 16 times; auto: torso for several arrays or with --torso, residual for images of '
    'at least 36x36 pixels, conv for smaller images with channels, else mlp.',
  )
  mlp_sizes: tuple[int, ...] = (128,)
  hidden_state_size: int = option(
    512,
    'Units in the hidden state of the mlp and torso models; Unplugged: 512.',
    at_least=1,
  )
  model_channels: int = option(
    256,
    'Channels of the hidden state of the conv and residual models; MuZero: 256.',
    at_least=1,
  )
  model_blocks: int = option(
    16,
    'Residual blocks of the dynamics, and of the representation; MuZero: 16, Unplugged: 10.',
    at_least=0,
  )
  head_size: int = option(
    128,
    'Units in the hidden layer of each head: policy, value and reward; not published.',
    at_least=1,
  )
  head_channels: int = option(
    0,
    'Channels of the 1x1 convolution before the hidden layer of each head, in the conv and residual '
    'models; 0: no such convolution. MuZero has one, of unpublished size.',
    at_least=0,
  )

  search: str = option(
    'gumbel',
    'Search: gumbel, of Gumbel MuZero, which improves the policy with any number of simulations; or '
    'puct, of MuZero, which needs more simulations than actions.',
  )
  num_simulations: int = option(
    50,
    'Simulations of a search; all three papers on Atari: 50.',
    at_most=10_000,
    at_least=1,
  )
  max_considered_actions: int = option(
    16,
    'Actions that gumbel considers at the root; Gumbel MuZero: 16, and fewer if there are fewer.',
    at_least=1,
  )
  gumbel_value_scale: float = option(
    0.1,
    "Scale of values against logits in gumbel's policy, c_scale; Gumbel MuZero: 0.1 on Atari, 1 in Go.",
    at_least=0,
  )
  gumbel_maxvisit: float = option(
    50.0,
    "Added to the largest number of visits in gumbel's policy, c_visit; Gumbel MuZero: 50.",
    at_least=0,
  )
  puct_c1: float = option(1.25, 'Weight of the prior in puct, c1; MuZero: 1.25.', at_least=0)
  puct_c2: float = option(
    19652.0, 'Visits after which puct explores more, c2; MuZero: 19652.', above=0
  )
  dirichlet_fraction: float = option(
    0.25,
    "Weight of the noise in puct's prior at the root, times exploration; MuZero: 0.25.",
    at_least=0,
    at_most=1,
  )
  dirichlet_alpha: float = option(
    0.3,
    "Concentration of that noise; MuZero: 0.3 in chess and 0.25 in the paper's code for Atari.",
    above=0,
  )
  temperature_decay_steps: int = option(
    0,
    'Learner steps in which the temperature of the visits of puct falls; 0: about all of the run. It is '
    '1 at first, 0.5 after half of them, 0.25 after three quarters. MuZero: 1 million.',
    at_least=0,
    at_most=MOST_STEPS,
  )
  search_value: str = option(
    'mean',
    "Value of a search: mean, of the root's visits, as in MuZero; chosen, of the action that it chose; "
    "or network, the root's before the search.",
  )

  unroll_length: int = option(
    20,
    'Rows of an unroll from which the model is unrolled; an unroll has --num_unroll_steps + --n_step '
    'rows after them, which are only targets. MuZero keeps 200 moves, Unplugged at most 500.',
    at_least=1,
  )
  num_unroll_steps: int = option(
    5,
    'Steps K for which the model is unrolled in training; MuZero and Unplugged: 5.',
    at_least=1,
  )
  n_step: int = option(
    10,
    'Transitions before a value target bootstraps; fewer where a truncated episode ends; MuZero: 10, '
    'Reanalyze and Unplugged: 5.',
    at_least=1,
  )
  discount: float = option(
    0.997,
    'Discount gamma per environment step; MuZero and Unplugged: 0.997.',
    at_least=0,
    at_most=1,
  )
  bootstrap: str = option(
    'target',
    'What a value target bootstraps from: target, the value of the target network, as in Reanalyze and '
    'Unplugged, or search, the value that was found when acting, as in MuZero.',
  )
  target_update_period: int = option(
    100,
    'Learner steps between copies of the online network to the target network; Unplugged: 100.',
    at_least=1,
  )
  num_bins: int = option(
    601,
    'Bins of the distributions of value and reward, over the range of h; MuZero and Unplugged: 601.',
    at_least=3,
  )
  max_bin: float = option(
    300.0,
    'Value of the last bin, in the range of h; the first is its negative; MuZero and Unplugged: 300.',
    above=0,
  )
  value_cost: float = option(
    0.25,
    'Weight of the value loss; MuZero: 1, Reanalyze and Unplugged: 0.25.',
    at_least=0,
  )
  importance_exponent: float = 1.0
  reanalyse_fraction: float = option(
    0.0,
    'Share of the unrolls of a batch that the learner searches again in its update, with the target '
    'network, for new policy targets; Reanalyze: 0.8; needs --bootstrap=target.',
    at_least=0,
    at_most=1,
  )
  updates_per_batch: int = option(
    1,
    'Equal parts of a batch, each a gradient step; Podracer splits batches to learn from less data.',
    at_least=1,
  )

  learning_rate: float = 1e-4
  weight_decay: float = 1e-4
  max_gradient_norm: float = 5.0

  @property
  def unroll_rows(self) -> int:
    """Rows of an unroll: every target of its last start is within it."""
    return self.unroll_length + self.num_unroll_steps + self.n_step

  def check_batch(self, flag: str, unrolls: int, num_devices: int, devices: str) -> None:
    """Checks that a batch divides into equal parts on every device; see `OptimizerConfig`."""
    parts = num_devices * self.updates_per_batch
    if unrolls % parts:
      raise ValueError(
        f'--{flag}={unrolls} does not divide into the {self.updates_per_batch} parts of '
        f'--updates_per_batch on each of {num_devices} {devices}; make it a multiple of {parts}.'
      )

  @property
  def gradient_steps_per_update(self) -> int:
    """Gradient steps in one learner step."""
    return self.updates_per_batch

  def _check(self) -> None:
    require_choice('model', self.model, MODELS)
    require_choice('search', self.search, SEARCHES)
    require_choice('search_value', self.search_value, SEARCH_VALUES)
    require_choice('bootstrap', self.bootstrap, BOOTSTRAPS)
    expected = 'an odd number, so that one bin is 0'
    require(self.num_bins % 2 == 1, 'num_bins', self.num_bins, expected)
    if self.reanalyse_fraction:
      expected = 'target with --reanalyse_fraction, or leave that out'
      require(self.bootstrap == 'target', 'bootstrap', self.bootstrap, expected)
