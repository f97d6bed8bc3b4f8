"""Recurrent cores: the memory of a network over the rows of an episode, with one interface.

The state of a core is a tuple of float32 arrays `[B, size]`, zeros at the start of an episode. It is
reset before each FIRST row, so rows may span episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from agents.networks import core_state as core_states
from agents.networks.config import NetworkConfig
from agents.types import Array

State = tuple[Array, ...]

# The moduli and phases of the LRU's eigenvalues in a new network: a ring near the unit circle and small
# phases, with which Orvieto et al. (2023) begin where sequences are long. The parts of the state fall to
# 1/e within 10 to 1,000 rows.
_MIN_MODULUS, _MAX_MODULUS, _MAX_PHASE = 0.9, 0.999, math.pi / 10


class Core(nn.Module):
  """The base class of cores.

  Attributes:
    size: units.
    num_parts: arrays in the state.
  """

  size: int
  num_parts: ClassVar[int]

  def initial_state(self, batch_size: int) -> State:
    """Returns the state at the start of an episode."""
    return tuple(jnp.zeros((batch_size, self.size), jnp.float32) for _ in range(self.num_parts))

  def __call__(self, inputs: Array, is_first: Array, state: State) -> tuple[Array, State]:
    """Consumes rows in order, resetting the state before each FIRST row.

    Args:
      inputs: float32 `[T, B, D]`.
      is_first: bool `[T, B]`.
      state: before row 0, `num_parts` arrays float32 `[B, size]`.

    Returns:
      The outputs, float32 `[T, B, size]`, and the state after row T-1.
    """
    raise NotImplementedError


class LSTM(Core):
  """An LSTM (Hochreiter and Schmidhuber 1997) with forget gates. Its state is (c, h), its outputs are h.

  The input projection of all rows is one matrix product; only the recurrent product is in the scan.

  Attributes:
    forget_bias: initial bias of the forget gates; the learned parameter is what it has beyond 1.
  """

  num_parts: ClassVar[int] = 2
  forget_bias: float = 1.0

  @nn.compact
  def __call__(self, inputs: Array, is_first: Array, state: State) -> tuple[Array, State]:
    """Consumes rows in order; see the base class."""
    biases = (0.0, self.forget_bias - 1.0, 0.0, 0.0)
    projected, recurrent = _projections(self, inputs, biases)

    def step(state: State, row: tuple[Array, Array]) -> tuple[State, Array]:
      x, first = row
      c, h = core_states.reset(state, (0.0, 0.0), first)
      i, f, g, o = jnp.split(x + h @ recurrent, 4, axis=-1)
      c = nn.sigmoid(f + 1.0) * c + nn.sigmoid(i) * jnp.tanh(g)
      h = nn.sigmoid(o) * jnp.tanh(c)
      return (c, h), h

    state, outputs = jax.lax.scan(step, state, (projected, is_first))
    return outputs, state


class GRU(Core):
  """A gated recurrent unit (Cho et al. 2014), whose state (h,) is its output.

      r = sigmoid(W_r x + U_r h + b_r)                   reset gate
      z = sigmoid(W_z x + U_z h + b_z)                   update gate
      n = tanh(W_n x + b_n + r * (U_n h + b_u))          candidate
      h <- (1 - z) * n + z * h

  The reset gate multiplies U_n h and not h, as in flax and cuDNN, so the scan has one matrix product.

  Attributes:
    forget_bias: initial bias of the update gates, b_z: with a large one, a new network keeps its state.
  """

  num_parts: ClassVar[int] = 1
  forget_bias: float = 1.0

  @nn.compact
  def __call__(self, inputs: Array, is_first: Array, state: State) -> tuple[Array, State]:
    """Consumes rows in order; see the base class."""
    projected, recurrent = _projections(self, inputs, (0.0, self.forget_bias, 0.0))
    bias = self.param('candidate_bias', nn.initializers.zeros, (self.size,), jnp.float32)

    def step(state: State, row: tuple[Array, Array]) -> tuple[State, Array]:
      x, first = row
      (h,) = core_states.reset(state, (0.0,), first)
      x_r, x_z, x_n = jnp.split(x, 3, axis=-1)
      h_r, h_z, h_n = jnp.split(h @ recurrent, 3, axis=-1)
      z = nn.sigmoid(x_z + h_z)
      n = jnp.tanh(x_n + nn.sigmoid(x_r + h_r) * (h_n + bias))
      h = (1.0 - z) * n + z * h
      return (h,), h

    state, outputs = jax.lax.scan(step, state, (projected, is_first))
    return outputs, state


class LRU(Core):
  """A linear recurrent unit (Orvieto et al. 2023), whose unroll is parallel in time.

  Its state h is complex, with a diagonal recurrence of the eigenvalues lambda:

      lambda = exp(-exp(nu) + i exp(theta))
      h_t = lambda * h_{t-1} + exp(gamma) * (B u_t)      0 in place of lambda in a FIRST row
      y_t = Re(C h_t) + D * u_t

  The modulus of lambda is below 1 for every nu. A new network has eigenvalues spread evenly over the
  area of a ring, and gamma so that h has the scale of B u. Since the recurrence is linear, an
  associative scan computes all rows in about log2(T) steps. A zero factor resets h, so the operator of
  the scan is the usual one; the results are those of the operator with a flag for resets (Lu et al.
  2023).

  The unit stands in a block of the paper's deep model: u is the normalised input (Ba et al. 2016) of
  the block, and its output is that input plus y after a GELU and a gated linear unit, without which the
  core would be linear. The state is (Re h, Im h).
  """

  num_parts: ClassVar[int] = 2

  @nn.compact
  def __call__(self, inputs: Array, is_first: Array, state: State) -> tuple[Array, State]:
    """Consumes rows in order; see the base class."""
    x = nn.Dense(self.size, name='input')(inputs)
    u = nn.LayerNorm(name='norm')(x)

    nu = self.param('nu', _initial_nu, (self.size,))
    theta = self.param('theta', _initial_theta, (self.size,))
    gamma = self.param('gamma', lambda _: 0.5 * jnp.log(1.0 - jnp.exp(-2.0 * jnp.exp(nu))))
    eigenvalues = jnp.exp(jax.lax.complex(-jnp.exp(nu), jnp.exp(theta)))

    # Matrices are pairs of real ones, of which Re(C h) has its sign in the second.
    init = nn.initializers.normal(1.0 / math.sqrt(2 * self.size))
    driven = nn.Dense(2 * self.size, use_bias=False, kernel_init=init, name='B')(u)
    b = jnp.exp(gamma) * jax.lax.complex(*jnp.split(driven, 2, axis=-1))
    a = jnp.where(is_first[..., None], 0.0, eigenvalues)
    b = b.at[0].add(a[0] * jax.lax.complex(*state))
    _, h = jax.lax.associative_scan(_compose, (a, b))

    init = nn.initializers.normal(1.0 / math.sqrt(self.size))
    parts = jnp.concatenate([h.real, h.imag], -1)
    y = nn.Dense(self.size, use_bias=False, kernel_init=init, name='C')(parts)
    y += self.param('D', nn.initializers.normal(1.0), (self.size,), jnp.float32) * u
    y = nn.gelu(y)
    outputs = x + y * nn.sigmoid(nn.Dense(self.size, name='gate')(y))
    return outputs, (h.real[-1], h.imag[-1])


def make(config: NetworkConfig) -> Core | None:
  """Returns the core of a network; None for a memoryless one."""
  if config.core == 'lstm':
    return LSTM(config.core_size, config.forget_bias)
  if config.core == 'gru':
    return GRU(config.core_size, config.forget_bias)
  return LRU(config.core_size) if config.core == 'lru' else None


def _projections(core: Core, inputs: Array, biases: Sequence[float]) -> tuple[Array, Array]:
  """Returns the inputs of a core's gates, `[T, B, G * size]`, and its recurrent matrix.

  Args:
    core: the one that calls; it gets the parameters.
    inputs: float32 `[T, B, D]`.
    biases: initial ones of the G gates.
  """
  width = len(biases) * core.size

  def bias_init(_: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    return jnp.repeat(jnp.asarray(biases, dtype), core.size).reshape(shape)

  projected = nn.Dense(width, name='input', bias_init=bias_init)(inputs)
  init = nn.initializers.variance_scaling(1.0, 'fan_avg', 'uniform')
  return projected, core.param('recurrent', init, (core.size, width), jnp.float32)


def _initial_nu(key: Array, shape: tuple[int, ...]) -> Array:
  """Returns log(-log |lambda|), with |lambda|^2 uniform between the squares of the moduli."""
  squares = jax.random.uniform(key, shape, jnp.float32, _MIN_MODULUS**2, _MAX_MODULUS**2)
  return jnp.log(-0.5 * jnp.log(squares))


def _initial_theta(key: Array, shape: tuple[int, ...]) -> Array:
  """Returns the logarithms of phases that are uniform up to the largest; `uniform` may return 0."""
  return jnp.log(_MAX_PHASE * (1.0 - jax.random.uniform(key, shape, jnp.float32)))


def _compose(before: tuple[Array, Array], after: tuple[Array, Array]) -> tuple[Array, Array]:
  """Returns the map h -> a h + b that does one such map and then another."""
  (a, b), (next_a, next_b) = before, after
  return next_a * a, next_a * b + next_b
