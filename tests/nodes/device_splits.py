"""Run with 8 fake devices: actor:learner splits against one device. See test_device.py."""

import functools
import types

import jax
import numpy as np
from acme.utils.counting import Counter

from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from environments.catch import Catch
from nodes.inference.layout import layout
from nodes.inference.server import InferenceServer
from nodes.learning.update import Learner
from tests.nodes.inference_clients import Client, Sink

BATCH, UPDATES = 84, 3
SPEC = Catch(1, 0).spec()


def make_agent():
  return VTrace(VTraceConfig(core='lstm', core_size=16), SPEC.observations, SPEC.actions)


@functools.cache
def initial_params():
  return jax.jit(make_agent().init)(jax.random.key(1)).params


def record(num_actor_devices):
  """Acts with several actors on some devices; returns batches of unrolls."""
  agent, sink = make_agent(), Sink()
  env_groups = layout(num_actors=2, envs_per_actor=28, env_groups=2)
  devices = jax.devices()[:num_actor_devices]
  server = InferenceServer(
    agent,
    env_groups,
    devices,
    SPEC,
    writer=sink,
    counter=Counter(),
    action_repeat=1,
    batch_size=28,
    timeout=0.01,
    seed=Seed(0),
  )
  server.set_params(0, initial_params())
  server.compile()
  server.start()
  clients = [
    Client(server, Catch(14, seed), s.actor_id, 1, s.group) for seed, s in enumerate(env_groups)
  ]
  for _ in range(20 * 6 + 1):
    for client in clients:
      client.step()
  used = {each.device for each in server.devices if each.rows}
  assert used == set(devices), 'an actor device was left idle'
  server.close()
  rows = [jax.tree.map(lambda x, i=i: x[i], u) for u in sink.unrolls for i in range(14)]
  batches = []
  for start in range(0, BATCH * UPDATES, BATCH):
    unrolls = jax.tree.map(lambda *x: np.stack(x), *rows[start : start + BATCH])
    probabilities = np.ones(BATCH, np.float32)
    batch = {'unroll_ids': np.arange(BATCH), 'keys': None, 'probabilities': probabilities}
    batches.append(types.SimpleNamespace(unrolls=unrolls, **batch))
  return batches


def learn(batches, devices):
  """Does an update on each batch; returns the learner, and the versions and parameters it published."""
  published = []
  learner = Learner(
    make_agent(),
    devices,
    lambda *version_and_params: published.append(version_and_params),
    lambda: None,
    Counter(),
    seed=Seed(1),
  )
  learner.learn_from(batches)
  for _ in batches:
    learner.step()
  return learner, published


def check(actors, batches, one):
  """Learns on the devices that do not act; returns the largest difference from the parameters `one`."""
  split, published = learn(batches, jax.devices()[actors:])
  differences, found = [], (initial_params(), one, published[-1][1])
  for before, a, b in zip(*map(jax.tree.leaves, found), strict=True):
    assert not np.array_equal(before, a), 'the updates changed nothing'
    differences.append(np.abs(np.asarray(a) - np.asarray(b)).max())
    shards = [np.asarray(s.data) for s in b.addressable_shards]
    assert len(shards) == 8 - actors
    assert all(np.array_equal(s, shards[0]) for s in shards), 'learner devices disagree'
  assert [v for v, _ in published] == [0, 1, 2, 3]
  on_actor = jax.device_put(published[-1][1], jax.devices()[0])
  jax.tree.map(np.testing.assert_array_equal, on_actor, split.get_variables(['params'])[0])
  return max(differences)


def main():
  batches = record(num_actor_devices=4)
  _, published = learn(batches, jax.devices()[:1])
  one = published[-1][1]
  for actors in (1, 4):
    print(actors, check(actors, batches, one))


if __name__ == '__main__':
  main()
