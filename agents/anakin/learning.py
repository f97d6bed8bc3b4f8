"""What the compiled loop does with new unrolls: learns from them at once, or keeps them in rings."""

from __future__ import annotations

import abc
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from agents.agent import Agent, LearnerState
from agents.anakin import ring as rings
from agents.anakin.limits import RingSizes
from agents.anakin.ring import Ring, Sample
from agents.types import Array, Nest, Unroll

_DATA: Any = PartitionSpec('data')
_EVERYWHERE: Any = PartitionSpec()


class Learning(abc.ABC):
  """One iteration of learning. Its methods are called within the compiled function.

  Attributes:
    updates: learner steps in each iteration, once learning has started.
    specs: of the sharding of the replay, as a prefix of its nest.
  """

  updates: int
  specs: Any

  @abc.abstractmethod
  def exploration(self, num_envs: int) -> np.ndarray:
    """Returns the exploration of each environment, float32 `[num_envs]`."""

  @abc.abstractmethod
  def begin(self, unrolls: Unroll, num_incomplete: int, key: Array) -> Nest:
    """Returns an empty replay.

    Args:
      unrolls: the shapes and dtypes of one unroll of each environment, `[B, ...]`.
      num_incomplete: how many of the first unrolls of each environment lack rows.
      key: a typed PRNG key.
    """

  @abc.abstractmethod
  def learn(
    self, learner: LearnerState, replay: Nest, unrolls: Unroll
  ) -> tuple[LearnerState, Nest, dict[str, Array]]:
    """Takes one new unroll of each environment, `[B, ...]`, and does the learner steps that are due.

    Returns:
      The learner state; the replay; and metrics, `[updates]` each, 0 if no learner step was due.
    """


class OnPolicyLearning(Learning):
  """One learner step on the new unrolls, which are then forgotten."""

  updates = 1
  specs = ()

  def __init__(self, agent: Agent):
    """Initialises it for an agent.

    Raises:
      ValueError: the agent's successive unrolls do not share exactly one row.
    """
    if agent.unroll_period != agent.unroll_rows - 1:
      raise ValueError(
        'Anakin without replay needs unrolls that share exactly one row with the next.'
      )
    self._agent = agent

  def exploration(self, num_envs: int) -> np.ndarray:
    """Returns that of the agent."""
    return self._agent.exploration(num_envs)

  def begin(self, unrolls: Unroll, num_incomplete: int, key: Array) -> Nest:
    """Returns nothing: there is no replay."""
    del unrolls, num_incomplete, key
    return ()

  def learn(
    self, learner: LearnerState, replay: Nest, unrolls: Unroll
  ) -> tuple[LearnerState, Nest, dict[str, Array]]:
    """See the base class."""
    output = self._agent.update(learner, unrolls, None)
    return output.state, replay, jax.tree.map(lambda x: x[None], output.metrics)


class ReplayLearning(Learning):
  """Puts the new unrolls into rings, then does a fixed number of learner steps on samples of them.

  The ratio of samples to inserts is therefore exact from the moment when learning starts: `min_slots`
  complete unrolls of each environment. Each device inserts into, samples and writes priorities back to
  the rings of its own environments; only the sums of the update move between devices.
  """

  specs = Ring(unrolls=_DATA, weights=_DATA, key=_DATA, count=_EVERYWHERE)

  def __init__(self, agent: Agent, sizes: RingSizes, mesh: Mesh):
    """Initialises it for an agent with `initial_priorities`, on a mesh with the axis `data`."""
    self.updates = sizes.updates_per_unroll
    self._agent = agent
    self._sizes = sizes
    self._map = functools.partial(jax.shard_map, mesh=mesh, check_vma=False)

  def exploration(self, num_envs: int) -> np.ndarray:
    """Returns that of the agent, in such an order that each ring has the whole range of it."""
    return self._agent.exploration(num_envs).reshape(-1, self._sizes.num_rings).T.ravel()

  def begin(self, unrolls: Unroll, num_incomplete: int, key: Array) -> Ring:
    """Returns empty rings. See the base class."""
    return rings.empty(unrolls, self._sizes.num_rings, self._sizes.slots, num_incomplete, key)

  def learn(
    self, learner: LearnerState, replay: Ring, unrolls: Unroll
  ) -> tuple[LearnerState, Ring, dict[str, Array]]:
    """See the base class."""
    ring = self._map(self._insert, in_specs=(self.specs, _DATA), out_specs=self.specs)(
      replay, unrolls
    )

    def update(
      carry: tuple[LearnerState, Array, Array], _: None
    ) -> tuple[tuple[LearnerState, Array, Array], dict[str, Array]]:
      # The unrolls are no part of the carry: only weights and keys change here.
      learner, weights, key = carry
      key, sample = self._map(self._sample, in_specs=(self.specs,), out_specs=(_DATA, _DATA))(
        ring._replace(weights=weights, key=key)
      )
      output = self._agent.update(learner, sample.unrolls, sample.probabilities)
      weights = self._map(self._reweigh, in_specs=(_DATA, _DATA, _DATA), out_specs=_DATA)(
        weights, sample.place, output.priorities
      )
      return (output.state, weights, key), output.metrics

    def learned(
      carry: tuple[LearnerState, Array, Array],
    ) -> tuple[tuple[LearnerState, Array, Array], dict[str, Array]]:
      return jax.lax.scan(update, carry, length=self.updates)

    carry = (learner, ring.weights, ring.key)
    _, metrics = jax.eval_shape(learned, carry)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), metrics)
    (learner, weights, key), metrics = jax.lax.cond(
      ring.count >= self._sizes.min_slots, learned, lambda carry: (carry, nothing), carry
    )
    return learner, ring._replace(weights=weights, key=key), metrics

  def _insert(self, ring: Ring, unrolls: Unroll) -> Ring:
    return rings.insert(ring, unrolls, self._weights(self._agent.initial_priorities(unrolls)))

  def _sample(self, ring: Ring) -> tuple[Array, Sample]:
    return rings.sample(ring, self._sizes.batch_size // self._sizes.num_rings)

  def _reweigh(self, ring_weights: Array, place: Array, priorities: Array) -> Array:
    return rings.reweigh(ring_weights, place, self._weights(priorities))

  def _weights(self, priorities: Array | None) -> Array:
    if priorities is None:
      raise ValueError('Anakin with replay needs an agent that has priorities.')
    return priorities**self._sizes.priority_exponent
