"""Searches: which recorded trials belong to them, and Optuna's suggestions."""

import importlib.util

import pytest

from sweeps import space
from sweeps.search import Listed, Tpe
from sweeps.space import Choices, Range

AXES = {
  'rate': Range(1e-4, 1e-1, log=True, whole=False),
  'length': Range(2, 40, log=False, whole=True),
  'core': Choices(('none', 'lstm')),
}
HAS_OPTUNA = importlib.util.find_spec('optuna') is not None
needs_optuna = pytest.mark.skipif(not HAS_OPTUNA, reason='optuna is not installed')


def test_a_list_finds_its_recorded_trials_and_yields_the_others():
  trials = [{'a': '1'}, {'a': '2'}, {'a': 0.5}]
  made = Listed(trials)
  assert made.begin([{'a': '7'}, {'a': 0.5}, {'a': '1'}]) == [2, 1]
  assert made.next() == {'a': '2'} and made.next() is None


@pytest.mark.skipif(HAS_OPTUNA, reason='optuna is installed')
def test_a_missing_optuna_is_named_with_the_command_that_installs_it(parse):
  with pytest.raises(ValueError, match='make add PACKAGES=optuna'):
    parse(search='tpe', trials=3)


@needs_optuna
@pytest.mark.parametrize('goal', ['maximize', 'minimize'])
def test_optuna_finds_better_trials_than_chance(goal):
  def score(values):
    return -abs(space.math.log10(values['rate']) + 2) - (values['core'] == 'none')

  sign = 1 if goal == 'maximize' else -1
  made, results = Tpe(AXES, 60, 1, goal), []
  made.begin([])
  while (values := made.next()) is not None:
    results.append(score(values))
    made.tell(values, sign * results[-1])
  assert len(results) == 60
  assert sum(results[30:]) / 30 > sum(results[:10]) / 10 + 0.2


@needs_optuna
def test_optuna_continues_from_recorded_trials_of_its_space():
  made = Tpe(AXES, 5, 1, 'maximize')
  recorded = [
    {'rate': 0.01, 'length': 3, 'core': 'lstm'},
    {'rate': 0.5, 'length': 3, 'core': 'lstm'},
    {'rate': 0.02, 'length': 3, 'core': 'gru'},
    {'rate': 0.03, 'length': 7, 'core': 'none'},
    {'rate': 0.03},
  ]
  assert made.begin(recorded) == [0, 3]
  made.tell(recorded[0], 1.0)
  made.tell(recorded[3], None)
  new = []
  while (values := made.next()) is not None:
    new.append(values)
  assert len(new) == 3 and all(isinstance(values['length'], int) for values in new)
  fresh = Tpe(AXES, 5, 1, 'maximize')  # What it suggested first is not suggested again.
  fresh.begin([])
  assert not [values for values in (fresh.next(), fresh.next()) if values in new]
