"""The policy that says whether a node that failed is started again."""

import pytest

from launchers import restart
from launchers.placement import Resources

KILLED, RAISED, SHORT = -9, 1, 1.0


def _record(**policy):
  return restart.Record(Resources(restart='on_failure', **policy))


def test_never_is_never():
  assert restart.Record(Resources()).delay(KILLED, SHORT) is None


def test_each_restart_in_a_row_waits_twice_as_long_up_to_a_bound():
  record = _record(max_restarts=9, restart_backoff=0.5)
  delays = [record.delay(KILLED, SHORT) for _ in range(9)]
  assert delays == [0.5, 1, 2, 4, 8, 8, 8, 8, 8]
  assert record.delay(KILLED, SHORT) is None


def test_a_node_that_ran_for_long_has_a_clean_record():
  record = _record(max_restarts=1)
  for _ in range(5):
    assert record.delay(KILLED, restart.STEADY_SECONDS + 1) == 0.5
  assert record.delay(KILLED, SHORT) is None


def test_the_third_exception_in_a_row_is_the_last():
  record = _record()
  assert record.delay(RAISED, SHORT) is not None
  assert record.delay(KILLED, SHORT) is not None
  assert record.delay(RAISED, SHORT) is not None
  assert record.delay(RAISED, SHORT) is None


def test_the_limit_that_is_reached_first_is_named():
  record, seen = _record(), []
  for code in (RAISED, KILLED, RAISED):
    assert record.delay(code, SHORT) is not None
    seen.append(record.standing())
  assert seen == [
    '1 of 2 restarts in a row after exceptions',
    '2 of 20 restarts in a row',
    '2 of 2 restarts in a row after exceptions',
  ]
  record = _record(max_restarts=1)
  assert record.delay(RAISED, SHORT) is not None
  assert record.standing() == '1 of 1 restarts in a row'


@pytest.mark.parametrize('policy', [{'restart': 'always'}, {'max_restarts': -1}])
def test_an_invalid_policy_is_rejected(policy):
  with pytest.raises(ValueError, match=next(iter(policy))):
    Resources(**policy)
