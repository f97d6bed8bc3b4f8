"""Policy distributions of actor-critic agents: categorical, squashed Gaussian and clipped Gaussian.

A policy samples a *draw*, which determines the action that the environment executes. For a discrete
action, draw and action are equal. For a continuous one the draw is an unbounded Gaussian sample, which
tanh or clipping maps into the bounds of the action spec.

Agents train on draws, which rows store in their extras. An action at a bound does not determine its
draw.
"""

from __future__ import annotations

import abc

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.actor_critic import squashed_entropy
from agents.boxes import Box
from agents.types import Array

MIN_STD = 0.02
# Under tanh, actions beyond this fraction of the bounds have the draw of this one; at a bound it would
# be infinite.
_EDGE = 0.999


class Distribution(abc.ABC):
  """A family of distributions over draws. Any number of axes may precede the shapes below.

  Attributes:
    num_logits: number of parameters of one distribution, the network's logits for a row.
    has_draws: whether draws differ from actions, so that rows store them too.
    num_free: number of parameters, the last ones, that are the same in every state.
  """

  num_logits: int
  has_draws: bool
  num_free: int = 0

  @abc.abstractmethod
  def sample(self, key: Array, logits: Array) -> Array:
    """Returns one draw for parameters `[num_logits]` and a typed PRNG key."""

  @abc.abstractmethod
  def mode(self, logits: Array) -> Array:
    """Returns the draw for acting without exploration."""

  @abc.abstractmethod
  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the log-probability, or log-density, of a draw, float32 `[]`."""

  @abc.abstractmethod
  def entropy(self, logits: Array) -> Array:
    """Returns the entropy of the action in nats, float32 `[]`."""

  @abc.abstractmethod
  def action(self, draw: Array) -> Array:
    """Returns the action of a draw, int32 or float32, in the shape of the action spec."""

  def draw(self, action: Array) -> Array:
    """Returns a draw of which an action is; for actions whose own draws are not known."""
    return action


class Categorical(Distribution):
  """A distribution over the labels 0 .. A-1; draw and action are equal."""

  has_draws = False

  def __init__(self, num_actions: int):
    self.num_logits = num_actions

  def sample(self, key: Array, logits: Array) -> Array:
    """Returns a label, int32 `[]`. See the base class."""
    return jax.random.categorical(key, logits).astype(jnp.int32)

  def mode(self, logits: Array) -> Array:
    """Returns the most probable label, int32 `[]`."""
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


class Gaussian(Distribution):
  """Independent Gaussians, one for each of the A dimensions of a box; a draw is float32 `[A]`.

  A draw between -1 and 1 is an action between the bounds. Subclasses define what lies beyond, and the
  standard deviations that the second half of the parameters `[2A]` gives. The first half is the means.
  """

  has_draws = True

  def __init__(self, action_spec: dm_env.specs.BoundedArray):
    """Initialises the distribution; the bounds of `action_spec` must be finite."""
    self._box = Box(action_spec)
    self.num_logits = 2 * self._box.num_dimensions

  @abc.abstractmethod
  def std(self, raw: Array) -> Array:
    """Returns standard deviations for the second half of the parameters, both `[..., A]`."""

  @abc.abstractmethod
  def squash(self, draw: Array) -> Array:
    """Returns the draw as a fraction of the bounds; `action` clips it to [-1, 1]."""

  @abc.abstractmethod
  def unsquash(self, fraction: Array) -> Array:
    """Returns a draw of a fraction of the bounds, between -1 and 1; the inverse of `squash`."""

  def sample(self, key: Array, logits: Array) -> Array:
    """Returns a Gaussian draw. See the base class."""
    mean, std = self.mean_and_std(logits)
    return mean + std * jax.random.normal(key, mean.shape, mean.dtype)

  def mode(self, logits: Array) -> Array:
    """Returns the means."""
    return self.mean_and_std(logits)[0]

  def log_prob(self, logits: Array, draw: Array) -> Array:
    """Returns the Gaussian log-density of a draw, before it is squashed. See the module docstring."""
    mean, std = self.mean_and_std(logits)
    log_density = -0.5 * jnp.square((draw - mean) / std) - jnp.log(std) - 0.5 * np.log(2 * np.pi)
    return jnp.sum(log_density, axis=-1)

  def action(self, draw: Array) -> Array:
    """Returns the action, float32, within the bounds."""
    return self._box.action(self.squash(draw))

  def draw(self, action: Array) -> Array:
    """Returns the draw `[..., A]` of an action; near a bound, one whose action is not quite there."""
    return self.unsquash(self._box.fraction(action))

  def mean_and_std(self, logits: Array) -> tuple[Array, Array]:
    """Splits parameters `[..., 2A]` into means and standard deviations, `[..., A]`."""
    mean, raw = jnp.split(logits, 2, axis=-1)
    return mean, self.std(raw)


class SquashedGaussian(Gaussian):
  """tanh of independent Gaussians whose standard deviations depend on the state.

  tanh changes the density by a factor that depends on the draw alone. Therefore pi/mu and the gradients
  of log pi are the same for actions and for their draws. The entropy is that of the executed action, so
  its bonus pulls the policy away from the bounds.

  A standard deviation is MIN_STD + softplus of a parameter, which needs no clamp and so has a gradient
  everywhere.
  """

  def std(self, raw: Array) -> Array:
    """Returns standard deviations of at least MIN_STD. See the base class."""
    return MIN_STD + jax.nn.softplus(raw)

  def squash(self, draw: Array) -> Array:
    """Returns tanh of the draw."""
    return jnp.tanh(draw)

  def unsquash(self, fraction: Array) -> Array:
    """Returns artanh of the fraction, which is moved away from the bounds."""
    return jnp.arctanh(jnp.clip(fraction, -_EDGE, _EDGE))

  def entropy(self, logits: Array) -> Array:
    """Returns the entropy of the action, with every dimension scaled to [-1, 1].

    It is at most A log 2, the entropy of the uniform distribution. Scaling to the bounds would add a
    constant.
    """
    return jnp.sum(squashed_entropy.entropy(*self.mean_and_std(logits)), axis=-1)

  def log_prob_of_action(self, logits: Array, draw: Array) -> Array:
    """Returns the log-density of the action of a draw, with every dimension scaled to [-1, 1].

    It is log N(u) - sum_i log(1 - tanh(u_i)^2) of the draw u (Haarnoja et al. 2018b, appendix C).

    Args:
      logits: `[..., 2A]`.
      draw: `[..., A]`, before tanh.
    """
    return self.log_prob(logits, draw) - jnp.sum(squashed_entropy.log_slope(draw), axis=-1)


class ClippedGaussian(Gaussian):
  """Independent Gaussians, clipped to the bounds, with standard deviations that no state changes.

  PPO's first implementation has them on MuJoCo. Their logarithms are parameters of the network, 0 at
  first. A density of draws beyond the bounds is not flat, so they have a gradient too.
  """

  def __init__(self, action_spec: dm_env.specs.BoundedArray):
    """Initialises the distribution; see the base class."""
    super().__init__(action_spec)
    self.num_free = self.num_logits // 2

  def std(self, raw: Array) -> Array:
    """Returns exp of the parameters."""
    return jnp.exp(raw)

  def squash(self, draw: Array) -> Array:
    """Returns the draw."""
    return draw

  def unsquash(self, fraction: Array) -> Array:
    """Returns the fraction."""
    return fraction

  def entropy(self, logits: Array) -> Array:
    """Returns the entropy of the draw, before it is clipped."""
    _, std = self.mean_and_std(logits)
    return jnp.sum(jnp.log(std) + 0.5 * np.log(2 * np.pi * np.e), axis=-1)
