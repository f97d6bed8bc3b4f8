"""An environment and unrolls whose observations are nests."""

import jax
import numpy as np
from acme import specs

from nodes.unrolls.packing import Columns
from tests.nodes.counter import CounterEnvironment
from tests.nodes.numbered import numbered_unrolls


def nest_of(count):
  """Returns a nest of several dtypes and shapes that tells a count, `[...]`."""
  count = np.asarray(count)
  return {
    'screen': np.broadcast_to(count[..., None, None] % 256, (*count.shape, 2, 3)).astype(np.uint8),
    'goal': (count.astype(np.int32), np.stack([count, -count], -1).astype(np.float32)),
    'action_mask': np.stack([count % 2 == 0, count % 2 == 1, count >= 0, count < 0], -1),
  }


class NestedCounter(CounterEnvironment):
  """Counts like its base class, and shows a nest."""

  def _timestep(self):
    return super()._timestep()._replace(observation=nest_of(self._count))

  def observation_spec(self):
    return jax.tree.map(lambda x: specs.Array(x.shape, x.dtype), nest_of(np.int64(0)))


def nested_unrolls(first, count):
  """Unrolls of `numbered_unrolls` whose observations are nests."""
  unrolls = numbered_unrolls(first, count)
  nest = nest_of(unrolls.action)
  return unrolls._replace(timestep=unrolls.timestep._replace(observation=nest))


COLUMNS = Columns(jax.tree.map(lambda x: x[0], nested_unrolls(0, 1)))
