"""Where every random number of a program comes from. Imports JAX only where a key is made.

A program has one root, and each of its nodes a child of it, by role and index. Whoever draws takes a
child by a name of its own, be it of a node's life, a group of environments or `actions`, so that two of
them may be given the same seed and still share nothing. No seed is ever made by adding to another.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

_ENVIRONMENT_BITS = 31


@dataclasses.dataclass(frozen=True)
class Seed:
  """A node in a tree of seeds. Equal ones give equal numbers, in any process; others are unrelated.

  Attributes:
    root: what the user chose, at least 0.
    path: the names that lead here.
  """

  root: int
  path: tuple[str | int, ...] = ()

  def child(self, *names: str | int) -> Seed:
    """Returns the seed further down by some names, such as `'actor', 3`."""
    return Seed(self.root, self.path + names)

  def number(self) -> int:
    """Returns a seed for a batch of environments, in [0, 2**31), which every library takes."""
    return int(self._words(1)[0] >> np.uint32(32 - _ENVIRONMENT_BITS))

  def key(self) -> Any:
    """Returns a typed PRNG key of JAX, of all the bits that its generator takes."""
    import jax
    import jax.numpy as jnp

    kind = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))
    return jax.random.wrap_key_data(jnp.asarray(self._words(kind.size)))

  def _words(self, count: int) -> np.ndarray:
    # Python's own hash of a string differs between processes.
    digest = hashlib.sha256(repr(self.path).encode()).digest()
    names = tuple(map(int, np.frombuffer(digest, '<u4')))
    return np.random.SeedSequence(self.root, spawn_key=names).generate_state(count)
