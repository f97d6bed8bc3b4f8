"""A script: Anakin on one and on eight fake devices, with V-trace or R2D2; prints how they compare."""

import sys

import jax
import numpy as np

from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from tests.agents import test_anakin_loop, test_anakin_replay, test_anakin_resets
from tests.agents.collectives import kinds_of_collectives

NUM_ENVS = 16
RINGS = RingSizes(
  num_rings=8, slots=3, min_slots=2, batch_size=16, updates_per_unroll=1, priority_exponent=0.7
)
# The module with agent and environment, learner steps in a call, and the replay.
AGENTS = {
  'vtrace': (test_anakin_loop, 3, None),
  'levels': (test_anakin_resets, 3, None),
  'r2d2': (test_anakin_replay, 5, RINGS),
}


def largest(a, b):
  """The largest difference between two nests."""
  leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
  return max((float(np.abs(np.float64(x) - y).max()) for x, y in leaves if x.size), default=0.0)


def main(agent='vtrace'):
  module, updates, sizes = AGENTS[agent]
  results = []
  for num_devices in (1, 8):
    devices = jax.devices()[:num_devices]
    loop = AnakinLoop(module.AGENT, module.CATCH, NUM_ENVS, devices, updates, sizes)
    state = loop.init(jax.random.key(1))
    fresh = jax.device_get(state.learner.params)
    text = loop.compile(state)
    state, _ = loop.train(state)
    results.append(loop.get(state))
  print('moved', largest(fresh, results[0].learner.params))
  for part in results[0]._fields:
    print(part, largest(getattr(results[0], part), getattr(results[1], part)))
  print('collectives', *kinds_of_collectives(text))
  print('devices', len(state.streams.row.action.sharding.device_set))


if __name__ == '__main__':
  main(*sys.argv[1:])
