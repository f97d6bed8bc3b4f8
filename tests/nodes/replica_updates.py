"""A script: one of several learner processes, or one alone with everybody's rows.

Run it with host:port of the coordinator, the number of processes, which of them it is, the devices
that learn (as in 0,1), the file to write, and the agents.
"""

import signal
import socket
import sys
import types

import dm_env.specs
import jax
import numpy as np
from acme.utils.counting import Counter

from agents.seeding import Seed
from nodes.learning import replicas
from nodes.learning.update import Learner
from tests.agents.sharded_update import AGENTS, make_unrolls
from tests.waiting import DEADLINE

UPDATES = 3


def mine(array, replica, num_replicas):
  """Returns a replica's rows."""
  size = len(array) // num_replicas
  return array[replica * size : (replica + 1) * size]


def learn(name, devices, replica, num_replicas):
  """Does the updates; returns what is to be compared, by name."""
  constructor, config, extra = AGENTS[name]
  agent = constructor(
    config, dm_env.specs.Array((6,), np.float32), dm_env.specs.DiscreteArray(3, dtype=np.int32)
  )
  unrolls = make_unrolls(agent, extra)
  keys = unrolls.environment_id
  probabilities = np.random.default_rng(1).uniform(0.1, 1.0, len(keys)).astype(np.float32)
  rows = jax.tree.map(lambda x: mine(x, replica, num_replicas), (unrolls, keys, probabilities))
  batch = types.SimpleNamespace(
    unrolls=rows[0], keys=rows[1], unroll_ids=rows[1], probabilities=rows[2]
  )
  acting, priorities, counter = [], [], Counter()

  def publish(version, params):
    acting.append(jax.device_put(params, jax.local_devices()[0]))

  def update_priorities(keys, values):
    np.testing.assert_array_equal(keys, batch.keys)
    priorities.append(np.asarray(values, np.float64))
    return True

  learner = Learner(agent, devices, publish, lambda: None, counter, seed=Seed(1))
  learner.compile(jax.tree.map(lambda x: x[0], batch.unrolls), len(batch.keys))
  learner.learn_from([batch] * UPDATES, update_priorities)
  losses = []
  for _ in range(UPDATES):
    counter.increment(actor_steps=10 + replica)
    learner.step()
    losses.append(learner.measure(1.0).get('loss'))  # Of the step before.
  params = jax.tree.leaves(learner.get_variables(['params'])[0])
  for acts, learns in zip(jax.tree.leaves(acting[-1]), params, strict=True):
    assert acts.devices() == {jax.local_devices()[0]}
    np.testing.assert_array_equal(acts, learns)
  moved = max(np.abs(a - b).max() for a, b in zip(params, jax.tree.leaves(acting[0]), strict=True))
  learner.restore(replicas.broadcast(learner.save(), replica))
  assert learner.learner_steps == UPDATES
  return {
    'params': np.concatenate([x.ravel() for x in params]),
    'moved': moved,
    'losses': np.array(losses[1:]),
    'priorities': np.array(priorities),
    'actor_steps': learner.actor_steps(),
  }


def replies_to_strangers(address):
  """Returns whether a gRPC server answers a client that speaks no TLS with the frame of its settings."""
  host, port = address.split(':')
  with socket.create_connection((host, int(port)), timeout=DEADLINE) as stream:
    stream.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + bytes(3) + b'\x04' + bytes(5))
    try:
      return stream.recv(4)[3:] == b'\x04'
    except ConnectionResetError:
      return False


def main():
  coordinator, num_replicas, replica, learner_devices, path, *agents = sys.argv[1:]
  indices = [int(i) for i in learner_devices.split(',')]
  if int(num_replicas) > 1:
    caught = []
    signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    replicas.initialize(coordinator, int(replica), int(num_replicas))
    signal.raise_signal(signal.SIGTERM)
    assert caught == [signal.SIGTERM], 'JAX has kept the signal for itself'
    assert not replies_to_strangers(coordinator), 'JAX has answered a client without certificate'
  devices = replicas.devices_of_all(indices, '--learner_devices')
  assert len(devices) == int(num_replicas) * len(indices)
  replicas.warm_up_collectives(devices)
  results = {}
  for name in agents:
    for key, value in learn(name, devices, int(replica), int(num_replicas)).items():
      results[f'{name}/{key}'] = value
  np.savez(path, **results)


if __name__ == '__main__':
  main()
