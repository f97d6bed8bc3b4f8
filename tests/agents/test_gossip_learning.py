"""Peers that learn Catch in one process, in synchronous rounds."""

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from agents.anakin.environments.catch import Catch
from agents.anakin.loop import AnakinLoop
from agents.gossip import graphs, mixing
from agents.gossip.mixing import Message
from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents import gossip_spread as spread

NUM_PEERS = 4
ROUNDS = 150


@pytest.mark.slow
def test_peers_that_learn_stay_within_the_bound_at_every_step_and_apart_without_gossip():
  environment = Catch()
  config = VTraceConfig(
    unroll_length=5,
    mlp_sizes=(16,),
    optimizer='rmsprop',
    learning_rate=3e-3,
    rmsprop_eps=1e-5,
    rmsprop_eps_place='outside',
  )
  agent = VTrace(config, environment.observation_spec, environment.action_spec)
  loop = AnakinLoop(agent, environment, 8, jax.local_devices()[:1])
  states = [loop.init(Seed(k).key()) for k in range(NUM_PEERS)]
  states = [state._replace(learner=states[0].learner) for state in states]
  loop.compile(states[0])
  first, unravel = ravel_pytree(states[0].learner.params)
  graph = graphs.graph('ring', NUM_PEERS)
  beta = spread.contraction(spread.matrix(graph))

  def distances(states, gossips):
    params, longest = np.tile(np.asarray(first), (NUM_PEERS, 1)), 0.0
    for _ in range(ROUNDS):
      states = [loop.train(state)[0] for state in states]
      after = np.stack([ravel_pytree(state.learner.params)[0] for state in states])
      longest = max(longest, *np.linalg.norm(after - params, axis=1))
      params = after
      if gossips:
        params = np.stack(
          [
            mixing.average(own, [Message(1.0, after[sender]) for sender in senders], len(senders))
            for own, senders in zip(after, graph.predecessors, strict=True)
          ]
        )
        states = [
          state._replace(learner=state.learner._replace(params=unravel(own)))
          for state, own in zip(states, params, strict=True)
        ]
      yield spread.distance_to_mean(params), spread.bound(beta, NUM_PEERS, longest)

  # `train` donates the environments.
  copies = [jax.tree.map(lambda x: x.copy(), state) for state in states]
  within = list(distances(copies, gossips=True))
  assert all(0 < distance <= bound for distance, bound in within)
  *_, (apart, _) = distances(states, gossips=False)
  assert apart > 3 * max(distance for distance, _ in within)
