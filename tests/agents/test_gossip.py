"""The rules of gossip against their definitions, in float64."""

import collections

import numpy as np
import pytest

from agents.gossip import graphs, mixing
from agents.gossip.mixing import Message
from tests.agents import gossip_spread as spread


def a_round(params, graph):
  """Returns the parameters `[n, D]` after a synchronous round of the average."""
  return np.stack(
    [
      mixing.average(own, [Message(1.0, params[sender]) for sender in senders], len(senders))
      for own, senders in zip(params, graph.predecessors, strict=True)
    ]
  )


def random_params(n, size=6):
  return np.random.default_rng(n).normal(size=(n, size))


def test_a_round_of_two_is_consensus():
  params = random_params(2).astype(np.float32)
  after = a_round(params, graphs.graph('ring', 2))
  assert after.dtype == np.float32
  np.testing.assert_array_equal(after[0], after[1])
  np.testing.assert_array_equal(after[0], params[0] / 2 + params[1] / 2)


def test_one_peer_keeps_its_parameters():
  assert graphs.graph('ring', 1).successors == ((),)
  params = random_params(1)
  np.testing.assert_array_equal(a_round(params, graphs.graph('ring', 1)), params)


@pytest.mark.parametrize('n', [2, 3, 4, 8])
def test_a_ring_without_learning_contracts_at_its_rate_and_keeps_the_mean(n):
  graph = graphs.graph('ring', n)
  beta = spread.contraction(spread.matrix(graph))
  assert beta == pytest.approx(np.cos(np.pi / n), abs=1e-12)
  # The slowest mode shrinks by beta exactly, any other start by no less.
  slowest = np.cos(2 * np.pi * np.arange(n) / n)[:, None]
  for params, slack in ((slowest, 1e-9), (random_params(n), np.inf)):
    mean = params.mean(axis=0)
    for _ in range(20):
      before, params = spread.distance_to_mean(params), a_round(params, graph)
      after = spread.distance_to_mean(params)
      assert beta * before - slack <= after <= beta * before + 1e-12
      np.testing.assert_allclose(params.mean(axis=0), mean, rtol=0, atol=1e-15)


@pytest.mark.parametrize('spec, n', [('ring', 2), ('ring', 4), ('ring', 8), ('full', 4)])
def test_the_distance_to_the_mean_is_under_the_bound_at_every_step(spec, n):
  graph = graphs.graph(spec, n)
  beta, longest = spread.contraction(spread.matrix(graph)), 0.1
  bound = spread.bound(beta, n, longest)
  params, random = np.zeros((n, 3)), np.random.default_rng(0)
  # Steps of full length: at random, then each peer always in a direction of its own.
  directions = random.normal(size=(n, 3))
  farthest = 0.0
  for step in range(400):
    steps = random.normal(size=(n, 3)) if step < 200 else directions
    params = params + longest * steps / np.linalg.norm(steps, axis=1, keepdims=True)
    params = a_round(params, graph)
    distance = spread.distance_to_mean(params)
    assert distance <= bound + 1e-12
    farthest = max(farthest, distance)
  assert n == 2 or spec == 'full' or farthest > 0.1 * bound  # The bound is not an empty one.


def test_a_missing_message_leaves_its_share_with_the_peer():
  own, other = np.float64([3.0]), np.float64([9.0])
  assert mixing.average(own, [Message(1.0, other)], 2) == 5.0  # (2 * 3 + 9) / 3.
  assert mixing.average(own, [], 2) == 3.0


def test_push_sum_by_hand():
  kept, share = mixing.split(1.0, num_receivers=1, num_successors=2)
  assert (kept, share) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
  mixed, weight = mixing.weighted_mean(np.float64([2.0]), 0.5, [Message(0.25, np.float64([8.0]))])
  assert weight == 0.75 and mixed == pytest.approx(4.0)  # (0.5 * 2 + 0.25 * 8) / 0.75.


def test_peers_behind_a_dead_one_keep_a_weight():
  weights = [1.0, 1.0]  # Of two in a row; the first has no predecessor any more.
  for _ in range(2000):
    weights[0], to_second = mixing.split(weights[0], 1, 1)
    weights[1], _ = mixing.split(weights[1], 1, 1)
    message = Message(to_second, np.float64([1.0]))
    mixed, weights[1] = mixing.weighted_mean(np.float64([2.0]), weights[1], [message])
    assert np.isfinite(mixed).all() and min(weights) > 0.0


@pytest.mark.parametrize('spec, n', [('ring', 4), ('0-1,1-2,2-0,2-1,0-3,3-2', 4), ('full', 3)])
def test_push_sum_conserves_its_sums_and_finds_the_mean_in_any_order(spec, n):
  graph, random = graphs.graph(spec, n), np.random.default_rng(1)
  params, weights, ways = random_params(n), np.ones(n), collections.defaultdict(list)
  mean = params.mean(axis=0)
  for _ in range(2000):
    k = random.integers(n)
    receivers = [r for r in graph.successors[k] if random.random() < 0.7]
    weights[k], share = mixing.split(weights[k], len(receivers), len(graph.successors[k]))
    for receiver in receivers:
      ways[receiver].append(Message(share, params[k].copy()))
    k = random.integers(n)  # Another one receives what is on its way, or only part of it.
    received = [ways[k].pop(0) for _ in range(random.integers(len(ways[k]) + 1))]
    params[k], weights[k] = mixing.weighted_mean(params[k], weights[k], received)
    under_way = [message for messages in ways.values() for message in messages]
    assert abs(weights.sum() + sum(m.weight for m in under_way) - n) < 1e-12
    total = weights @ params + sum((m.weight * m.params for m in under_way), np.zeros(6))
    assert np.abs(total - n * mean).max() < 1e-12
  np.testing.assert_allclose(params, np.broadcast_to(mean, params.shape), rtol=0, atol=1e-12)


def test_the_average_drifts_where_turns_are_random():
  graph, params, random = graphs.graph('ring', 4), random_params(4), np.random.default_rng(2)
  mean = params.mean(axis=0)
  for _ in range(400):
    k = random.integers(4)
    (sender,) = graph.predecessors[k]
    params[k] = mixing.average(params[k], [Message(1.0, params[sender])], 1)
  assert spread.distance_to_mean(params) < 1e-6
  assert np.linalg.norm(params[0] - mean) > 0.1 * np.linalg.norm(mean)


def test_graphs_by_name_and_by_their_edges():
  assert graphs.graph('ring', 3).successors == ((1,), (2,), (0,))
  assert graphs.graph('full', 3).predecessors == ((1, 2), (0, 2), (0, 1))
  assert graphs.graph('2-0, 0-1,1-2,0-2', 3).successors == ((1, 2), (2,), (0,))
  assert graphs.graph('2-0,0-1,1-2,0-2', 3).predecessors == ((2,), (0,), (0, 1))


@pytest.mark.parametrize(
  'spec, words',
  [
    ('star', 'there are: ring, full, and edges'),
    ('0>1', 'there are: ring, full, and edges'),
    ('0-1,1-2,2-3', '2-3 is not between two of the peers 0 to 2'),
    ('0-1,1-1,1-0', '1-1 is not between two of the peers'),
    ('0-1,1-0', 'peer 0 reaches all peers except 2'),
    ('0-1,1-0,1-2', 'peer 0 is reached by all peers except 2'),
  ],
)
def test_graphs_in_which_peers_would_drift_apart_are_rejected(spec, words):
  with pytest.raises(ValueError, match=words):
    graphs.graph(spec, 3)
