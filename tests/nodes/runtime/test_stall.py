"""When a counter that does not change is explained in the log."""

import types

import pytest

from nodes.runtime import stall
from nodes.runtime.stall import StallWarning


@pytest.fixture
def clock(monkeypatch):
  """The time, in a list."""
  now = [0.0]
  monkeypatch.setattr(stall, 'time', types.SimpleNamespace(monotonic=lambda: now[0]))
  return now


def test_an_explanation_is_requested_each_time_a_count_has_stalled(clock, caplog):
  asked = []
  waiting = StallWarning(lambda: asked.append(True) or 'it waits for the actors.', seconds=30.0)
  # The count changes at 29 and again at 100.
  for clock[0], count, explained in (
    (1, 0, 0),
    (29, 5, 0),
    (58, 5, 0),
    (60, 5, 1),
    (61, 5, 1),
    (89, 5, 1),
    (91, 5, 2),
    (100, 6, 2),
    (130, 6, 2),
    (131, 6, 3),
  ):
    waiting.check(count)
    assert len(asked) == explained, f'at {clock[0]} s'
  messages = [record.getMessage() for record in caplog.records]
  assert messages == ['no progress for 30 s: it waits for the actors.'] * 3


def test_a_count_that_moves_needs_no_explanation(clock):
  waiting = StallWarning(pytest.fail, seconds=30.0)
  for count in range(1000):
    clock[0] += 100.0
    waiting.check(count)
