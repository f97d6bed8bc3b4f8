"""A script: three updates of Anakin on one and on eight fake devices; prints how they compare."""

import jax
import numpy as np

from agents.anakin.loop import AnakinLoop
from tests.agents.collectives import kinds_of_collectives
from tests.agents.test_anakin_loop import AGENT, CATCH

NUM_ENVS = 16


def largest(a, b):
  """The largest difference between two nests."""
  return max(
    jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(np.float64(x) - y).max()), a, b))
  )


def main():
  results = []
  for num_devices in (1, 8):
    loop = AnakinLoop(AGENT, CATCH, NUM_ENVS, jax.devices()[:num_devices], updates_per_call=3)
    state = loop.init(jax.random.key(1))
    fresh = jax.device_get(state.learner.params)
    text = loop.compile(state)
    state, _ = loop.train(state)
    results.append(jax.device_get(state))
  print('moved', largest(fresh, results[0].learner.params))
  print('learner', largest(results[0].learner, results[1].learner))
  print('streams', largest(results[0].streams, results[1].streams))
  print('collectives', *kinds_of_collectives(text))
  print('devices', len(state.streams.row.action.sharding.device_set))


if __name__ == '__main__':
  main()
