"""Copies unrolls from table to table, with fresh targets from the learner's newest parameters."""

from __future__ import annotations

from typing import Any

import jax

from agents.types import Array, Unroll
from nodes.runtime import lifecycle
from nodes.transform import Transform

# What it reports, by the name that every `Transform` has for it.
_NAMES = {
  'unrolls_written': 'unrolls_relabelled',
  'unrolls_per_second': 'relabelled_per_second',
  'waiting_share': 'relabeller_waiting_share',
}


class Relabeller(Transform):
  """Replaces the extras of unrolls by `agent.relabel`."""

  def __init__(self, *args: Any, **kwargs: Any):
    """Initialises the node; see `Transform`."""
    super().__init__(*args, **kwargs)
    self._seed = self.options.seed.child('restart', lifecycle.restart_count())

  def prepare(self, unroll: Unroll) -> None:
    """Compiles `agent.relabel` for a batch of unrolls."""
    size = self.options.batch_size
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct((size, *x.shape), x.dtype), unroll)
    self._relabel = jax.jit(self.agent.relabel).lower(self.params, batch, self._keys(0)).compile()

  def transform(self, unrolls: Unroll, number: int) -> Unroll:
    """Returns the unrolls with fresh extras."""
    extras = self._relabel(self.params, unrolls, self._keys(number))
    return unrolls._replace(extras=jax.device_get(extras))

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns what the node reports, for the time since its last report."""
    return {_NAMES.get(name, name): value for name, value in super().measure(seconds).items()}

  def _keys(self, number: int) -> Array:
    """Returns the typed PRNG keys of batch `number` of this incarnation, `[B]`."""
    return jax.random.split(jax.random.fold_in(self._seed.key(), number), self.options.batch_size)
