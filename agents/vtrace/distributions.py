"""What V-trace asks of a policy's distribution, and the two there are: over labels and over boxes.

A policy makes a *draw*, from which the action follows that the environment executes. Of a discrete
action they are the same. Of a continuous one the draw is Gaussian and unbounded, and the action its
tanh, scaled to the bounds of the action spec. That beats clipping, since the action never leaves its
bounds and the density is nowhere flat in the draw; and the entropy is that of the executed action, so
that its bonus pulls a policy back from the bounds, where for a clipped Gaussian it would only widen.

What is learned from is the draw, which rows keep in their extras: float32 tanh is 1 from 9 on, so no
inverse would bring a draw back. tanh changes the density by a factor that depends on the draw alone, so
that pi/mu of the actions is pi/mu of their draws, and so are the gradients of log pi.
"""

from __future__ import annotations

import abc

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.types import Array
from agents.vtrace import squashed_entropy

MIN_STD = 0.02


class Distribution(abc.ABC):
  """A family of distributions over draws. Any number of axes may precede the shapes below.

  Attributes:
    num_logits: parameters of one distribution, as the network has them for each row.
    has_draws: whether a draw is something else than its action, and is to be kept beside it.
  """

  num_logits: int
  has_draws: bool

  @abc.abstractmethod
  def sample(self, key: Array, logits: Array) -> Array:
    """Returns one draw for parameters `[num_logits]` and a typed PRNG key."""

  @abc.abstractmethod
  def mode(self, logits: Array) -> Array:
    """Returns the draw that stands for a distribution where nothing is to be explored."""

  @abc.abstractmethod
  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the logarithm of the probability, or density, of draws: float32 `[]`."""

  @abc.abstractmethod
  def entropy(self, logits: Array) -> Array:
    """Returns the entropy of the action in nats, float32 `[]`."""

  @abc.abstractmethod
  def action(self, draw: Array) -> Array:
    """Returns the action that a draw stands for, in the shape and dtype of the action spec."""


class Categorical(Distribution):
  """Over the labels 0 .. A-1; a draw is its action."""

  has_draws = False

  def __init__(self, num_actions: int):
    self.num_logits = num_actions

  def sample(self, key: Array, logits: Array) -> Array:
    """Returns a label, int32 `[]`. See the base class."""
    return jax.random.categorical(key, logits).astype(jnp.int32)

  def mode(self, logits: Array) -> Array:
    """Returns the likeliest label, int32 `[]`."""
    return jnp.argmax(logits, axis=-1).astype(jnp.int32)

  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the log-probability of a label. See the base class."""
    log_pi = jax.nn.log_softmax(logits)
    return jnp.take_along_axis(log_pi, draw[..., None].astype(jnp.int32), axis=-1)[..., 0]

  def entropy(self, logits: Array) -> Array:
    """Returns the entropy. See the base class."""
    log_pi = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1)

  def action(self, draw: Array) -> Array:
    """Returns the label itself."""
    return draw


class SquashedGaussian(Distribution):
  """Over a box of A dimensions in all: tanh of independent Gaussians, scaled to the bounds.

  Of the parameters `[2A]` the first half is the means, the second gives the standard deviations as
  MIN_STD + softplus, which needs no clamp and so has a gradient everywhere. A draw is float32 `[A]`.
  """

  has_draws = True

  def __init__(self, action_spec: dm_env.specs.BoundedArray):
    """Takes the bounds, which are finite."""
    self._shape = action_spec.shape
    self._low = np.broadcast_to(action_spec.minimum, self._shape).astype(np.float32)
    self._high = np.broadcast_to(action_spec.maximum, self._shape).astype(np.float32)
    self.num_logits = 2 * int(np.prod(self._shape, dtype=np.int64))

  def sample(self, key: Array, logits: Array) -> Array:
    """Returns a Gaussian draw. See the base class."""
    mean, std = _mean_and_std(logits)
    return mean + std * jax.random.normal(key, mean.shape, mean.dtype)

  def mode(self, logits: Array) -> Array:
    """Returns the means."""
    return _mean_and_std(logits)[0]

  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the Gaussian log-density of a draw, before tanh. See the top of this file."""
    mean, std = _mean_and_std(logits)
    log_density = -0.5 * jnp.square((draw - mean) / std) - jnp.log(std) - 0.5 * np.log(2 * np.pi)
    return jnp.sum(log_density, axis=-1)

  def entropy(self, logits: Array) -> Array:
    """Returns the entropy of the action in a box [-1, 1] in every dimension.

    It is at most A log 2, that of the uniform one; the units of the action would add a constant.
    """
    return jnp.sum(squashed_entropy.entropy(*_mean_and_std(logits)), axis=-1)

  def action(self, draw: Array) -> Array:
    """Returns float32 within the bounds, which rounding does not exceed either."""
    squashed = jnp.tanh(draw).reshape(*draw.shape[:-1], *self._shape)
    middle, half = 0.5 * (self._high + self._low), 0.5 * (self._high - self._low)
    return jnp.clip(middle + half * squashed, self._low, self._high)


def _mean_and_std(logits: Array) -> tuple[Array, Array]:
  """Splits parameters `[..., 2A]` into means and standard deviations, `[..., A]`."""
  mean, raw_std = jnp.split(logits, 2, axis=-1)
  return mean, MIN_STD + jax.nn.softplus(raw_std)


def make_distribution(action_spec: dm_env.specs.Array) -> Distribution:
  """Returns the distribution that suits the actions.

  Raises:
    ValueError: the spec is neither a DiscreteArray nor a finite BoundedArray of floats.
  """
  if isinstance(action_spec, dm_env.specs.DiscreteArray):
    return Categorical(action_spec.num_values)
  if (
    isinstance(action_spec, dm_env.specs.BoundedArray)
    and np.issubdtype(action_spec.dtype, np.floating)
    and np.isfinite(action_spec.minimum).all()
    and np.isfinite(action_spec.maximum).all()
  ):
    return SquashedGaussian(action_spec)
  raise ValueError(f'V-trace needs discrete or bounded continuous actions, not {action_spec!r}.')
