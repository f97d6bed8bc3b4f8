"""Exchanges of peers, with a network that loses, repeats and delays what they send."""

import concurrent.futures

import numpy as np
import pytest

from agents.gossip.mixing import Message
from nodes.gossip import outbox as outboxes
from nodes.gossip.mailbox import Mailbox
from nodes.gossip.options import AVERAGE, PUSH_SUM
from tests.nodes.gossip.network import Network
from tests.waiting import DEADLINE


def random_params(n):
  return np.random.default_rng(0).normal(size=(n, 4))


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
  monkeypatch.setattr(outboxes, '_RETRY_SECONDS', 0.0)


@pytest.mark.parametrize('mixing', [AVERAGE, PUSH_SUM])
def test_a_blocking_round_of_two_is_consensus(mixing):
  network, params = Network('ring', 2, mixing, blocking=True, timeout=DEADLINE), random_params(2)
  network.is_instant = True
  expected = (params[0] + params[1]) / 2

  def run(k):
    return network.exchanges[k](params[k], lambda: False)

  with concurrent.futures.ThreadPoolExecutor(2) as threads:
    mixed = list(threads.map(run, range(2)))
  np.testing.assert_array_equal(mixed[0], mixed[1])
  np.testing.assert_allclose(mixed[0], expected, rtol=0, atol=1e-15)


def test_a_peer_that_never_blocks_sends_once_until_it_is_confirmed_and_mixes_what_is_there():
  network, params = Network('ring', 2, AVERAGE), np.array([[1.0], [3.0]])
  network.step(0, params)
  network.step(0, params)
  assert len(network.calls) == 1 and params[0] == 1.0
  network.deliver(network.calls.pop())
  network.step(1, params)
  assert params[1] == 2.0
  params[0] = 5.0
  network.step(0, params)
  network.step(1, params)  # Nothing has arrived.
  assert params[1] == 2.0 and len(network.calls) == 2


def test_parameters_of_another_shape_are_refused_and_not_broadcast():
  network = Network('ring', 2, AVERAGE, is_instant=True)
  network.step(0, {0: np.ones(1, np.float32)})
  with pytest.raises(ValueError, match=r'peer 0 has sent .* float32\[1\], and .* are float32\[3\]'):
    network.step(1, {1: np.ones(3, np.float32)})


def _after_a_loss(**options):
  """Returns two peers, of which one has lost a message and then made a step, and their parameters."""
  network, params = Network('ring', 2, AVERAGE, **options), np.array([[1.0], [3.0]])
  network.step(0, params)
  network.lose(network.calls.pop())
  params[0] = 9.0
  network.step(0, params)
  return network, params


def test_a_message_of_the_average_that_is_lost_is_replaced_by_the_next():
  network, params = _after_a_loss()
  [call] = network.calls
  assert call[2][-1] == 9.0
  network.deliver(call)
  network.step(1, params)
  assert params[1] == 6.0


def test_a_message_of_a_blocking_peer_that_is_lost_is_sent_again():
  network, _ = _after_a_loss(blocking=True)
  [call] = network.calls
  assert call[2][-1] == 1.0


def test_the_average_mixes_the_newest_message_only():
  network, params = Network('ring', 2, AVERAGE, is_instant=True), np.array([[1.0], [3.0]])
  network.step(0, params)
  params[0] = 7.0
  network.step(0, params)
  network.step(1, params)
  assert params[1] == 5.0
  network.step(1, params)
  assert params[1] == 5.0


def under_way(network):
  """Returns the messages that have not been mixed, each once, by their names."""
  kept = {}
  for receiver, method, (sender, _, sequence, *message), _ in network.calls:
    assert method == 'offer'
    known = network.exchanges[receiver].mailbox._senders[sender]
    if sequence > known.sequence:  # Others have arrived, and this is a copy.
      kept[receiver, sender] = Message(*message)
  for box in (exchange.mailbox for exchange in network.exchanges):
    for sender, known in box._senders.items():
      kept |= {(id(box), sender, k): message for k, message in enumerate(known.messages)}
  return list(kept.values())


@pytest.mark.parametrize('spec, n', [('ring', 4), ('0-1,1-2,2-0,0-2,2-3,3-0', 4)])
def test_lost_repeated_and_late_messages_cost_push_sum_nothing_but_lag(spec, n):
  network, params, random = Network(spec, n, PUSH_SUM), random_params(n), np.random.default_rng(1)
  mean, late = params.mean(axis=0), []
  for _ in range(2000):
    network.step(random.integers(n), params)
    if network.calls and random.random() < 0.8:
      call = network.calls[random.integers(len(network.calls))]
      fate = random.random()
      if fate < 0.2 and not call[3].done():
        network.lose(call)  # Before it arrives; a copy of it may still do so.
        late.append(call)
      elif fate < 0.4 and not call[3].done():
        network.deliver(call, reply=False)
      else:
        network.deliver(call)
        late.append(call)
      network.calls.remove(call)
    if late and random.random() < 0.2:
      network.deliver(late.pop(random.integers(len(late))))
    for outbox in (outbox for exchange in network.exchanges for outbox in exchange._outboxes):
      outbox.is_idle()  # What is lost is sent again.
    weights = np.array([exchange.weight for exchange in network.exchanges])
    messages = under_way(network)
    assert abs(weights.sum() + sum(m.weight for m in messages) - n) < 1e-12
    total = weights @ params + sum((m.weight * m.params for m in messages), np.zeros(4))
    assert np.abs(total - n * mean).max() < 1e-12
  np.testing.assert_allclose(params, np.broadcast_to(mean, params.shape), rtol=0, atol=1e-9)


def test_a_successor_that_is_down_takes_no_weight():
  network, params = Network('ring', 2, PUSH_SUM), random_params(2)
  for _ in range(100):
    network.step(0, params)
  assert network.exchanges[0].weight == 0.5 and len(network.calls) == 1


def test_a_blocking_peer_waits_for_a_neighbour_only_once_and_then_until_it_is_back(monkeypatch):
  network = Network('ring', 2, AVERAGE, blocking=True, is_instant=True)
  params, polls = np.array([[1.0], [3.0]]), []
  exchange = network.exchanges[0]
  wait = exchange.mailbox.wait
  monkeypatch.setattr(
    exchange.mailbox, 'wait', lambda s, timeout: polls.append(timeout) or wait(s, 0.0)
  )
  for _ in range(3):
    network.step(0, params)
  assert params[0] == 1.0 and exchange.measure()['gossip_neighbours_away'] == 1
  assert polls == [0.0] * 3  # Its timeout, 0 s, is over at once; from then on it only looks.
  network.restart(1, incarnation=7)
  network.step(1, params)
  network.step(0, params)
  assert params[0] == 2.0 and exchange.measure()['gossip_neighbours_away'] == 0


def test_a_blocking_peer_does_not_wait_for_one_that_has_finished():
  network = Network('ring', 2, AVERAGE, blocking=True, timeout=DEADLINE, is_instant=True)
  params = np.array([[1.0], [3.0]])
  network.exchanges[1].leave()
  network.step(0, params)
  assert params[0] == 1.0


@pytest.mark.parametrize('blocking', [False, True])
def test_a_successor_that_has_finished_gets_one_more_message_which_comes_back(blocking):
  network = Network('ring', 3, PUSH_SUM, blocking=blocking, timeout=DEADLINE, is_instant=True)
  params = random_params(3)
  calls = []
  put = network.exchanges[1].mailbox.put
  network.exchanges[1].mailbox.put = lambda *args: calls.append(args) or put(*args)
  for exchange in network.exchanges[1:]:
    exchange.leave()  # Nothing more comes from them, either.
  for _ in range(20):
    network.step(0, params)
  assert len(calls) == 1 and network.exchanges[0].weight == 1.0
  np.testing.assert_allclose(params[0], random_params(3)[0], rtol=1e-15)
  assert network.exchanges[0].measure()['gossip_neighbours_away'] == 0


def test_a_message_is_kept_once_and_none_of_an_earlier_incarnation():
  one, two = Message(1.0, np.float32([1])), Message(1.0, np.float32([2]))
  mailbox = Mailbox([3], capacity=1, drops_oldest=False)
  assert mailbox.take(3) is None
  assert mailbox.put(3, 10, 1, one) and mailbox.put(3, 10, 1, one)
  assert not mailbox.put(3, 10, 2, two)  # Full: to be sent again.
  assert mailbox.take(3) is one and mailbox.take(3) is None
  assert mailbox.put(3, 10, 1, one) and mailbox.take(3) is None
  assert mailbox.put(3, 10, 2, two) and mailbox.take(3) is two
  assert mailbox.put(3, 11, 1, one) and mailbox.take(3) is one
  assert mailbox.put(3, 10, 3, two) and mailbox.take(3) is None  # Of the incarnation before.
  mailbox.leave(3, 10, 2)
  assert not mailbox.wait(3, 0.0)
  mailbox.leave(3, 11, 2)
  assert not mailbox.wait(3, 0.0)  # The last message is still under way.
  assert mailbox.put(3, 11, 2, two) and mailbox.wait(3, 0.0) and mailbox.take(3) is two
  assert mailbox.wait(3, 0.0)
  assert mailbox.put(3, 12, 1, one) and mailbox.take(3) is one and not mailbox.wait(3, 0.0)
