"""Spaces of tuned options, and the rules of a population."""

import collections
import math

import numpy as np
import pytest

from agents.population import fusion, rules, space
from agents.ppo.config import PPOConfig
from agents.vtrace.config import VTraceConfig

RNG = np.random.default_rng


def axis(text, config=None):
  (found,) = space.parse(text, config or PPOConfig())
  return found


def sources(rule, scores, member, *args, times=4000):
  """Returns how often a rule chooses each source, as shares."""
  rng = RNG(0)
  found = collections.Counter(rule(scores, member, *args, rng) for _ in range(times))
  return {source: count / times for source, count in found.items()}


def test_under_truncation_the_worst_fifth_copies_the_best_fifth_uniformly():
  scores = {k: float(k) for k in range(10)}  # The two worst are 0 and 1, the two best 8 and 9.
  for member in (0, 1):
    assert sources(rules.truncation, scores, member, 0.2) == {
      8: pytest.approx(0.5, abs=0.03),
      9: pytest.approx(0.5, abs=0.03),
    }
  for member in range(2, 10):
    assert sources(rules.truncation, scores, member, 0.2) == {None: 1.0}


@pytest.mark.parametrize(
  'members, share, replaced', [(1, 0.2, 0), (2, 0.2, 1), (3, 0.5, 1), (8, 0.2, 2), (10, 0.3, 3)]
)
def test_the_share_is_rounded_up_and_at_most_half(members, share, replaced):
  scores = {k: float(k) for k in range(members)}
  found = [rules.truncation(scores, k, share, RNG(0)) for k in range(members)]
  assert [k for k, source in enumerate(found) if source is not None] == list(range(replaced))


def test_in_the_tournament_the_worst_copies_the_best_and_the_best_nobody():
  scores = {0: 1.0, 1: 2.0, 2: 4.0}
  assert sources(rules.tournament, scores, 0) == {2: 1.0}
  assert sources(rules.tournament, scores, 2) == {None: 1.0}


def test_an_opponent_is_drawn_by_the_softmax_of_its_standardised_score():
  scores = {0: 1.0, 1: 2.0, 2: 4.0}
  mean, std = 7 / 3, math.sqrt(14 / 9)
  powers = [math.exp((score - mean) / std) for score in scores.values()]
  won = powers[2] / sum(powers)
  np.testing.assert_allclose(
    rules.softmax(np.array([1.0, 2.0, 4.0])), np.array(powers) / sum(powers)
  )
  # It keeps its own state against itself and against the worse one.
  found = sources(rules.tournament, scores, 1, times=20000)
  assert found == {2: pytest.approx(won, abs=0.01), None: pytest.approx(1 - won, abs=0.01)}


@pytest.mark.parametrize('rule', [rules.tournament, lambda s, m, r: rules.truncation(s, m, 0.5, r)])
def test_nobody_copies_one_that_is_not_better(rule):
  rng = RNG(1)
  for _ in range(2000):
    count = int(rng.integers(1, 7))
    scores = {k: float(rng.integers(0, 4)) for k in range(count)}
    for lost in range(int(rng.integers(0, count + 1))):
      scores[lost] = -math.inf
    for member in scores:
      source = rule(scores, member, rng)
      assert source is None or scores[source] > scores[member]
      if scores[member] == max(scores.values()):
        assert source is None


@pytest.mark.parametrize('rule', [rules.tournament, lambda s, m, r: rules.truncation(s, m, 0.5, r)])
def test_equal_members_all_become_the_best_after_some_rounds(rule):
  rng, scores = RNG(2), {k: float(k) for k in range(16)}
  for round_number in range(12):
    before = dict(scores)
    for member in scores:
      source = rule(scores, member, rng)
      if source is not None:
        scores[member] = scores[source]
    assert max(scores.values()) == 15 and min(scores.values()) >= min(before.values()), round_number
  assert set(scores.values()) == {15.0}


def test_a_member_that_has_diverged_copies_one_that_has_not():
  scores = {0: -math.inf, 1: -math.inf, 2: 1.0, 3: 0.0}
  assert rules.tournament(scores, 0, RNG(0)) == rules.tournament(scores, 1, RNG(0)) == 2
  assert rules.truncation(scores, 0, 0.25, RNG(0)) == 2
  assert rules.tournament({0: -math.inf, 1: -math.inf}, 0, RNG(0)) is None


def test_values_are_log_uniform_at_first():
  rng, found = RNG(3), axis('learning_rate=1e-5..1e-1')
  drawn = np.log10([found.draw(rng) for _ in range(4000)])
  assert -5 <= drawn.min() < -4.9 and -1.1 < drawn.max() <= -1
  assert drawn.mean() == pytest.approx(-3, abs=0.1)
  assert np.histogram(drawn, 4, (-5, -1))[0] / 4000 == pytest.approx([0.25] * 4, abs=0.03)


def test_of_a_discount_the_distance_to_one_is_log_uniform_and_perturbed():
  rng, found = RNG(4), axis('discount=0.9..0.999')
  drawn = np.log10([1 - found.draw(rng) for _ in range(4000)])
  assert -3.001 < drawn.min() < -2.95 and -1.05 < drawn.max() < -0.999
  assert drawn.mean() == pytest.approx(-2, abs=0.05)
  assert {found.perturb(0.99, rng) for _ in range(50)} == {0.992, 0.988}
  # A lambda of 0 is 1 away from 1, and cannot be further.
  assert {axis('gae_lambda=0.5..0.95').perturb(0.0, rng) for _ in range(50)} == {0.0, 0.2}


def test_a_value_is_multiplied_by_a_fifth_more_or_less():
  rng, found = RNG(5), axis('learning_rate=1e-4..1e-3')
  changed = collections.Counter(found.perturb(1e-3, rng) for _ in range(2000))
  # It may leave the range in which it began.
  assert changed == {8e-4: pytest.approx(1000, abs=80), 1.2e-3: pytest.approx(1000, abs=80)}


def test_an_option_of_offspring_is_drawn_anew_or_perturbed():
  axes = space.parse('learning_rate=1e-5..1e-4,entropy_cost=1e-2..1e-1', VTraceConfig())
  values = {'learning_rate': 1e-3, 'entropy_cost': 1e-3}
  rng, perturbed = RNG(6), {8e-4, 1.2e-3}
  found = [space.explore(axes, values, 0.25, rng) for _ in range(2000)]
  for name in values:
    drawn = [new[name] for new in found if new[name] not in perturbed]
    assert len(drawn) / 2000 == pytest.approx(0.25, abs=0.03)
  both = sum({*new.values()} <= perturbed for new in found)
  assert both / 2000 == pytest.approx(0.75**2, abs=0.03), 'each option has its own chance'
  assert space.explore(axes, values, 0.0, RNG(7)) == space.explore(axes, values, 0.0, RNG(7))


@pytest.mark.parametrize(
  'text, words',
  [
    ('learning_rate', ['OPTION=LOW..HIGH']),
    ('learning_rate=1e-3', ['OPTION=LOW..HIGH']),
    ('learning_rate=a..b', ['OPTION=LOW..HIGH']),
    ('learning_rate=1e-3..1e-4', ['LOW must be below HIGH']),
    ('learning_rate=1e-3..inf', ['LOW must be below HIGH']),
    ('learning_rate=0..1', ['LOW must be above 0']),
    ('discount=0.9..1', ['HIGH must be below 1']),
    ('discount=-1..0.9', ['discount=-1..0.9', 'from 0 to 1']),
    ('unroll_length=5..10', ['unroll_length is not an option', 'learning_rate, discount']),
    ('clip_ratio=0.1..0.3,clip_ratio=0.1..0.2', ['clip_ratio twice']),
  ],
)
def test_a_range_that_cannot_be_is_refused_in_a_sentence(text, words):
  with pytest.raises(ValueError) as error:
    space.parse(text, PPOConfig())
  assert all(word in str(error.value) for word in words), error.value


def test_the_members_cover_each_range_evenly_and_in_another_order():
  axes = space.parse('learning_rate=1e-5..1e-1,discount=0.9..0.9999', VTraceConfig())
  members = space.spread(axes, 8, RNG(8))
  places = {
    'learning_rate': [(np.log10(values['learning_rate']) + 5) / 4 for values in members],
    'discount': [(np.log10(1 - values['discount']) + 1) / -3 for values in members],
  }
  parts = {name: [int(8 * place) for place in found] for name, found in places.items()}
  assert all(sorted(found) == list(range(8)) for found in parts.values())
  assert parts['learning_rate'] != parts['discount']
  assert members != space.spread(axes, 8, RNG(9)) and space.spread((), 2, RNG(8)) == [{}, {}]


def test_fused_states_are_the_mean_of_what_is_real_and_the_first_of_what_counts():
  states = [
    {'w': np.array([w, 2.0], np.float32), 'count': np.int32(n), 'nu': {'b': np.float16(w)}}
    for w, n in ((1.0, 3), (5.0, 9))
  ]
  found = fusion.fused(states)
  np.testing.assert_array_equal(found['w'], np.array([3.0, 2.0], np.float32))
  assert found['count'] == 3 and found['nu']['b'] == 3.0
  assert [x.dtype for x in (found['w'], found['count'], found['nu']['b'])] == ['f4', 'i4', 'f2']
  assert fusion.fused(states[:1]) is states[0]


def test_what_is_tuned_may_be_nothing():
  assert space.parse('', VTraceConfig()) == ()
