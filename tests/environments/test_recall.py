"""Recall needs a row that no recent window of rows contains."""

import collections

import numpy as np
import pytest

from environments import registry
from environments.recall import Recall

FIRST, MID, LAST = 0, 1, 2
WAIT = 0
DELAY, JITTER = 10, 4


def returns_with_a_window(num_cues, window):
  """Returns the returns of the best policy that sees the last `window` rows, question included."""
  num_envs = 300
  environment = Recall(num_envs, 0, num_cues, DELAY, JITTER)
  rng = np.random.default_rng(1)
  row = environment.reset()
  seen = collections.deque([row.observation], maxlen=window)
  returns = []
  for _ in range(5 * (DELAY + JITTER + 2)):
    answer = rng.integers(num_cues, size=num_envs)
    for observation in seen:  # The newest cue counts.
      is_cue = observation[:, -2] == 1
      answer[is_cue] = observation[is_cue].argmax(1)
    asked = row.observation[:, -1] == 1
    row = environment.step(np.where(asked, answer + 1, WAIT).astype(np.int32))
    seen.append(row.observation)
    assert (row.reward[row.step_type != LAST] == 0).all()
    np.testing.assert_array_equal(row.last(), asked)
    returns += row.reward[asked].tolist()
  return np.array(returns, np.float32)


@pytest.mark.parametrize('num_cues', [2, 4])
def test_memory_of_the_whole_episode_is_worth_one_and_a_shorter_one_nothing(num_cues):
  whole = returns_with_a_window(num_cues, DELAY + JITTER + 1)
  np.testing.assert_array_equal(whole, 1)
  shorter = returns_with_a_window(num_cues, DELAY)
  assert set(shorter) == {1, np.float32(-1 / (num_cues - 1))}
  assert abs(shorter.mean()) < 4 * shorter.std() / np.sqrt(shorter.size)
  some = returns_with_a_window(num_cues, DELAY + 1 + JITTER // 2).mean()
  assert 0.4 < some < 0.8  # The cues of 3 of 5 delays are in this window.


def test_no_row_after_the_cue_depends_on_it():
  """So any function of those rows answers no better than a guess."""
  one, other = (Recall(50, 3, delay=DELAY, jitter=JITTER) for _ in range(2))
  rows = one.reset(), other.reset()
  other._cue = 1 - one._cue
  playing = np.ones(50, bool)
  while playing.any():
    action = (rows[0].observation[:, -1] == 1).astype(np.int32)  # The same answer in all.
    rows = one.step(action), other.step(action)
    for name in ('step_type', 'discount', 'observation'):
      np.testing.assert_array_equal(*(getattr(row, name)[playing] for row in rows))
    ended = playing & rows[0].last()
    np.testing.assert_array_equal(rows[0].reward[ended], -rows[1].reward[ended])
    assert (rows[0].reward[ended] != 0).all()
    playing &= ~ended


def test_an_episode_is_a_cue_then_distractors_then_a_question():
  num_envs, share = 200, 0.3
  environment = Recall(num_envs, 0, 3, DELAY, JITTER, share)
  row = environment.reset()
  age, delays, shown = np.zeros(num_envs, int), [], []
  for _ in range(100):
    first, last = row.first(), row.last()
    age = np.where(first, 0, age + 1)
    symbols, cue, question = row.observation[:, :3].sum(1), *row.observation[:, 3:].T
    np.testing.assert_array_equal(cue, first)
    np.testing.assert_array_equal(symbols[first], 1)
    np.testing.assert_array_equal(row.observation[last], 0)
    delays += age[question == 1].tolist()
    shown += symbols[~first & ~last & (question == 0)].tolist()
    np.testing.assert_array_equal(row.discount, ~last)
    asked, row = question == 1, environment.step(np.full(num_envs, WAIT, np.int32))
    np.testing.assert_array_equal(row.last(), asked)  # No answer is a wrong one.
    np.testing.assert_array_equal(row.reward[asked], -0.5)
    np.testing.assert_array_equal(row.first(), last)
  assert set(delays) == set(range(DELAY, DELAY + JITTER + 1))
  assert abs(np.mean(shown) - share) < 4 * np.sqrt(share * (1 - share) / len(shown))


def test_an_early_answer_is_wrong_though_it_names_the_cue():
  for age in range(DELAY):
    environment = Recall(20, age, delay=DELAY, jitter=0)
    cue = environment.reset().observation[:, :2].argmax(1)
    for _ in range(age):
      row = environment.step(np.full(20, WAIT, np.int32))
      np.testing.assert_array_equal(row.step_type, MID)
    row = environment.step(1 + cue.astype(np.int32))
    np.testing.assert_array_equal(row.step_type, LAST)
    np.testing.assert_array_equal(row.discount, 0)
    np.testing.assert_array_equal(row.reward, -1)
    np.testing.assert_array_equal(row.observation, 0)
    np.testing.assert_array_equal(environment.step(np.full(20, 1, np.int32)).step_type, FIRST)


@pytest.mark.parametrize(
  ('options', 'sentence'),
  [
    ('num_cues=1', 'num_cues must be from 2'),
    ('delay=0', 'delay must be at least 1'),
    ('jitter=-1', 'jitter must be at least 0'),
    ('distractors=1.5', r'distractors must be in \[0, 1\]'),
  ],
)
def test_options_out_of_range_are_rejected(options, sentence):
  with pytest.raises(ValueError, match=sentence):
    registry.trial('recall', options)
