"""The options of an agent's network. Imports no JAX: launching a program reads only this."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from agents.options import CheckedOptions, option

TORSOS = ('auto', 'mlp', 'nature', 'small', 'impala', 'minatar')
CORES = ('none', 'lstm', 'gru', 'lru')
ACTIVATIONS = ('relu', 'tanh')
INITS = ('fan_in', 'orthogonal')


@dataclasses.dataclass(frozen=True)
class TorsoConfig(CheckedOptions):
  """Options of a torso, applied per row.

  Attributes:
    torso: a name of `TORSOS`. An agent also takes a function without arguments that returns a flax
      module; programs make one of the file that the flag names.
  """

  torso: str = option(
    'auto',
    'Feature extractor: mlp, nature (DQN convolutions), small (half of them, for images of 42x42 '
    'pixels), impala (deep residual), minatar (one convolution), or auto: nature for uint8 images of at '
    'least 36x36 pixels, minatar for smaller images with channels, of any type, else mlp; for each part '
    'of a nest; or path/to/mine.py:MyTorso.',
  )
  mlp_sizes: tuple[int, ...] = option((128, 64), 'Units in each hidden layer of the mlp torso.')
  frame_stack: int = option(
    1,
    'Consecutive observations that the torso receives, zeros before the first of an episode.',
    at_least=1,
  )

  def _check(self) -> None:
    require_torso(self.torso)
    require(min(self.mlp_sizes, default=1) >= 1, 'mlp_sizes', self.mlp_sizes, 'sizes of at least 1')


@dataclasses.dataclass(frozen=True)
class NetworkConfig(TorsoConfig):
  """Options of a torso, applied per row, and an optional recurrent core.

  Attributes:
    action_kinds: those that the agent takes, of `agents.spaces`; a property of it, not an option.
    layer_norm: whether each layer of the torso is normalised (Ba et al. 2016) before its activation; a
      property of the agent as well.
  """

  action_kinds: ClassVar[tuple[str, ...]] = ('discrete',)
  layer_norm: ClassVar[bool] = False

  activation: str = option(
    'relu',
    "Activation of the mlp torso, and of SAC's heads: relu, or tanh as in PPO on MuJoCo.",
  )
  init: str = option(
    'fan_in',
    'Initial weights of torso and values: fan_in scales their variance by the inputs of a layer, '
    'orthogonal is as in PPO: gain sqrt(2), 1 before values. Layers before a policy of V-trace and PPO '
    'have orthogonal ones of gain 0.01 with both, the convolutions of impala those of fan_in.',
  )
  hidden_size: int = option(
    0,
    'Units in the layer after the convolutions: 512 in DQN, 256 in IMPALA, 128 in MinAtar; 0: 128 with '
    'the minatar torso, 256 with small, else 512. Also in the layer that joins the parts of a nest; '
    '0: 256.',
    at_least=0,
  )
  center_pixels: bool = option(
    False,
    'Whether convolutional torsos receive images of bytes minus their mean: what all images share, such '
    'as a background, is then near 0.',
  )
  core: str = option(
    'none',
    'Memory over time: none, lstm, gru, or lru, a linear recurrent unit, which runs the rows of an '
    'unroll in parallel.',
  )
  core_size: int = option(256, 'Units in the core: 256 in IMPALA, 512 in R2D2.', at_least=1)
  forget_bias: float = option(
    1.0,
    'Initial bias of the forget gates of the LSTM, as in Jozefowicz et al. 2015, and of the update '
    'gates of the GRU: a new network keeps a state for about 1 + e^bias rows, 4 with 1 and 56 with 4. '
    'A new LRU has units that keep it for 10 to 1,000.',
  )
  clip_reward_input: bool = option(
    True, 'Whether the core receives the previous reward clipped to [-1, 1], as in IMPALA, or raw.'
  )

  def _check(self) -> None:
    require_choice('core', self.core, CORES)
    require_choice('activation', self.activation, ACTIVATIONS)
    require_choice('init', self.init, INITS)


def require(condition: bool, name: str, value: object, expected: str) -> None:
  """Raises ValueError with the flag, its `value` and the `expected` fix unless `condition` holds."""
  if not condition:
    raise ValueError(f'--{name} is {value!r}: set it to {expected}.')


def require_torso(torso: Any) -> None:
  """Raises ValueError, one sentence, unless `torso` is one of `TORSOS`, or makes a user's own."""
  known = callable(torso) or torso in TORSOS
  require(known, 'torso', torso, f'{", ".join(TORSOS)} or path/to/mine.py:MyTorso')


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
  """Raises ValueError with the flag and its `choices` if `value` is none of them."""
  require(value in choices, name, value, f'{", ".join(choices[:-1])} or {choices[-1]}')
