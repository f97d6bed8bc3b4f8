"""A member of a population, whose leaderboard may be away."""

import jax
import numpy as np
import pytest

from agents.tuned import Tuned
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.learning import serialisation
from nodes.population import member as members
from nodes.population.member import Member
from nodes.population.options import Place
from nodes.runtime import lifecycle
from tests.agents.recording import ACTION_SPEC, OBSERVATION_SPEC
from tests.nodes.population.instant import Client, serving

COUNTS = {'actor_steps': 0, 'environment_frames': 0, 'learner_steps': 0}
READY = 40


@pytest.fixture
def client(tmp_path):
  return Client(serving(tmp_path, resample=0.0))


@pytest.fixture(scope='module')
def learners():
  config = VTraceConfig(unroll_length=4, mlp_sizes=(8,))
  agent = Tuned(VTrace, config, {'learning_rate': 1e-3}, OBSERVATION_SPEC, ACTION_SPEC)
  return [jax.jit(agent.init)(jax.random.key(k)) for k in range(3)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
  monkeypatch.setattr(members, '_RETRY_SECONDS', 0.0)


def play(member, learner, score, calls=READY // 10):
  """Plays calls of 10 steps and one episode each; returns what the last exchange returned."""
  for _ in range(calls):
    member.played(10, 1.0, score)
    found = member.exchange(learner, COUNTS)
  return found


def make(client, number=0):
  return Member(Place(number, READY, client))


def test_a_report_comes_after_each_interval_with_the_mean_return_of_its_episodes(client, learners):
  member = make(client)
  for k in range(10):
    member.played(10, float(k % 2), 3.0 * (k % 2))  # An episode in every second call.
    assert member.exchange(learners[0], COUNTS) is None
  assert [call[2] for call in client.calls] == [1, 2]
  assert all(call[4] == 3.0 for call in client.calls)
  assert client.calls[0][5] == {'learning_rate': 1e-3}
  assert member.measure() == {'score': 3.0, 'copies': 0.0}
  member.played(20, 2.0, 2.0)
  member.exchange(learners[0], COUNTS)
  assert client.calls[2][4] == pytest.approx((3.0 + 2.0) / 3), 'of the last interval alone'


def test_a_member_without_an_ended_episode_waits_for_one(client, learners):
  member = make(client)
  for _ in range(20):
    member.played(10, 0.0, 0.0)
    assert member.exchange(learners[0], COUNTS) is None
  assert client.calls == []
  play(member, learners[0], 1.0, calls=1)
  assert len(client.calls) == 1


def test_the_worse_continues_with_the_state_of_the_better_and_with_other_values(client, learners):
  play(make(client, 0), learners[0], 5.0)
  worse = make(client, 1)
  found = play(worse, learners[1], 1.0)
  jax.tree.map(np.testing.assert_array_equal, found.params, jax.device_get(learners[0].params))
  assert found.values['learning_rate'] in (np.float32(8e-4), np.float32(1.2e-3))
  assert worse.measure()['copies'] == 1
  # What the copied state has not played itself does not count.
  play(worse, learners[1], 7.0, calls=READY // 10 - 1)
  assert len(client.calls) == 2
  play(worse, learners[1], 7.0, calls=1)
  assert client.calls[2][4] == 7.0


def test_it_trains_on_while_the_leaderboard_is_away_and_reports_the_same_again(client, learners):
  play(make(client, 0), learners[0], 5.0)
  worse = make(client, 1)
  client.is_down = True
  assert play(worse, learners[1], 1.0, calls=20) is None
  client.is_down, client.loses = False, True
  assert play(worse, learners[1], 9.0, calls=3) is None
  client.loses = False
  found = play(worse, learners[1], 9.0, calls=1) or play(worse, learners[1], 9.0, calls=1)
  assert found is not None
  of_worse = [call[:5] for call in client.calls if call[0] == 1]
  assert len(set(map(str, of_worse))) == 1 and of_worse[0][4] == 1.0
  assert len(client.leaderboard._board.latest) == 2


def test_it_does_not_wait_for_the_reply(client, learners):
  play(make(client, 0), learners[0], 5.0)
  worse = make(client, 1)
  client.holds = True
  assert play(worse, learners[1], 1.0, calls=30) is None
  assert len(client.held) == 1
  client.deliver()
  assert worse.exchange(learners[2], COUNTS) is not None


def test_an_error_that_does_not_pass_is_raised(client, learners):
  def broken(*args):
    raise TypeError('broken')

  client.leaderboard.report = broken
  with pytest.raises(TypeError, match='broken'):
    play(make(client), learners[0], 1.0)


def test_one_that_has_diverged_reports_no_score_and_is_replaced(client, learners):
  play(make(client, 0), learners[0], -9.0)
  diverged = make(client, 1)
  diverged.diverge()
  found = play(diverged, learners[1], 5.0)
  assert client.calls[1][4] is None and client.calls[1][6] is None
  jax.tree.map(np.testing.assert_array_equal, found.params, jax.device_get(learners[0].params))
  # The next score is its own again.
  play(diverged, learners[1], 5.0)
  assert client.calls[2][4] == 5.0


def test_returns_that_are_not_finite_are_no_score(client, learners):
  play(make(client), learners[0], float('nan'))
  assert client.calls[0][4] is None and client.calls[0][6] is None


def test_the_end_is_reported_if_it_has_a_whole_interval(client, learners):
  member = make(client)
  play(member, learners[0], 1.0)
  play(member, learners[0], 5.0, calls=2)
  member.finish(learners[0], COUNTS, lambda: False)
  assert [call[4] for call in client.calls] == [1.0, 3.0]
  short = make(client, 1)
  play(short, learners[1], 1.0, calls=1)
  short.finish(learners[1], COUNTS, lambda: False)
  assert len(client.calls) == 2


def test_the_end_has_the_parameters_of_a_member_without_a_score(client, learners):
  for number in range(8):
    member = make(client, number)
    member.played(READY, 0.0, 0.0)  # No episode has ended.
    member.finish(learners[number % 3], COUNTS, lambda: False)
  _, params = client.leaderboard.get_params()
  expected = serialisation.to_data(learners[0])['params']
  jax.tree.map(np.testing.assert_array_equal, params, expected)


def test_a_restarted_leaderboard_has_the_end_again(tmp_path, client, learners):
  ended = [make(client, number) for number in range(8)]
  for k, member in enumerate(ended):
    member.played(READY, 0.0, 0.0)
    member.finish(learners[k % 3], COUNTS, lambda: False)
  before = client.leaderboard.get_params()
  client.leaderboard = serving(tmp_path, resample=0.0)
  client.is_down = True
  ended[0].repeat_end()
  client.is_down = False
  for member in ended:
    member.repeat_end()
  jax.tree.map(np.testing.assert_array_equal, client.leaderboard.get_params(), before)


def test_the_end_follows_the_reply_to_the_last_report(client, learners):
  play(make(client, 0), learners[0], 5.0)
  late = make(client, 1)
  client.is_down = True
  assert play(late, learners[1], 1.0) is None
  client.is_down = False
  found = late.finish(learners[1], COUNTS, lambda: False)
  jax.tree.map(np.testing.assert_array_equal, found.params, jax.device_get(learners[0].params))
  assert len(client.calls) == 2, 'a score of what it has not played'


def test_pods_continue_with_their_mean_once_all_have_a_score(tmp_path, learners):
  client = Client(serving(tmp_path, num_members=2, num_pods=2))
  first, second = make(client, 0), make(client, 1)
  assert play(first, learners[0], 1.0) is None
  # It trains on, and asks again with what it has then.
  assert play(first, learners[1], 4.0) is None
  assert [call[4] for call in client.calls if call[0] == 0][-1] == 4.0
  assert {call[2] for call in client.calls} == {1}
  fused = play(second, learners[2], 2.0)
  mean = jax.tree.map(
    lambda a, b: (np.float64(a) + np.float64(b)) / 2, learners[1].params, learners[2].params
  )
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), fused.params, mean)
  other = first.exchange(learners[1], COUNTS)
  jax.tree.map(np.testing.assert_array_equal, other.params, fused.params)
  assert first.measure() == {'score': 4.0, 'copies': 0.0}
  # At the end neither waits for the other.
  play(first, learners[0], 1.0)
  assert first.finish(learners[0], COUNTS, lambda: False) is None


def test_the_end_of_the_program_ends_the_wait_for_a_leaderboard_that_is_away(client, learners):
  member = make(client)
  client.is_down = True
  play(member, learners[0], 1.0)
  with pytest.raises(lifecycle.Stopped):
    member.finish(learners[0], COUNTS, lambda: True)
