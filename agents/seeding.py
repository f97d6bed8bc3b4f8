"""A tree of seeds, the source of all random numbers of a program. JAX is imported only to make a key.

A program has one root seed, and each node has a child of it, by role and index. Every consumer derives
its own named child, such as a restart, a group of environments or `actions`. Consumers that receive
the same seed therefore share no random numbers. Seeds are never derived by addition.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

_ENVIRONMENT_BITS = 31


@dataclasses.dataclass(frozen=True)
class Seed:
  """A node in a tree of seeds.

  Equal seeds give equal numbers in any process; different seeds give independent ones.

  Attributes:
    root: the user's seed, at least 0.
    path: the names from the root to this node.
  """

  root: int
  path: tuple[str | int, ...] = ()

  def child(self, *names: str | int) -> Seed:
    """Returns the descendant with these names, such as `'actor', 3`."""
    return Seed(self.root, self.path + names)

  def number(self) -> int:
    """Returns a seed for a batch of environments, in [0, 2**31), which every library accepts."""
    return int(self._words(1)[0] >> np.uint32(32 - _ENVIRONMENT_BITS))

  def key(self) -> Any:
    """Returns a typed JAX PRNG key, with as many seed bits as its generator takes."""
    import jax
    import jax.numpy as jnp

    kind = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return jax.random.wrap_key_data(jnp.asarray(self._words(kind.size)))

  def _words(self, count: int) -> np.ndarray:
    # Python's own hash of a string differs between processes.
    digest = hashlib.sha256(repr(self.path).encode()).digest()
    names = tuple(map(int, np.frombuffer(digest, '<u4')))
    return np.random.SeedSequence(self.root, spawn_key=names).generate_state(count)
