"""Spaces: what their entries mean, and what is refused."""

import numpy as np
import pytest

from sweeps import space
from sweeps.space import Choices, Range


def parse(**axes):
  return space.parse(axes, 'mine.yaml: space')


def test_a_space_has_values_as_flags_take_them_and_ranges_of_the_flags_type():
  assert parse(
    core=['none', 'lstm'],
    mlp_sizes=[[64, 64], [16]],
    normalize_observations=[True, False],
    learning_rate={'log_range': ['1e-4', '1e-2']},
    unroll_length={'range': [5, 20]},
    env_options={'choices': [{'rows': 6}, 'rows=8']},
  ) == {
    'core': Choices(('none', 'lstm')),
    'mlp_sizes': Choices(('64,64', '16')),
    'normalize_observations': Choices(('true', 'false')),
    'learning_rate': Range(1e-4, 1e-2, log=True, whole=False),
    'unroll_length': Range(5, 20, log=False, whole=True),
    'env_options': Choices(('rows=6', 'rows=8')),
  }


@pytest.mark.parametrize(
  'axes, said',
  [
    ({}, 'is empty; give at least one flag'),
    ({'learning_rat': [1]}, "there is no option 'learning_rat'; did you mean learning_rate?"),
    ({'learning_rate': 0.1}, 'learning_rate is 0.1; it needs a list of values'),
    ({'learning_rate': []}, 'learning_rate has no values'),
    ({'learning_rate': ['low']}, "learning_rate cannot be 'low': could not convert"),
    ({'unroll_length': [5, 5.5]}, "unroll_length cannot be '5.5'"),
    ({'unroll_length': [5, '5']}, 'unroll_length has 5 twice'),
    ({'learning_rate': ['1e-3', 0.001]}, 'learning_rate has 1e-3 twice'),
    ({'unroll_length': {'range': [1, 10**400]}}, 'has a number of more than 64 bits'),
    ({'core': {'range': [1, 2]}}, 'core takes no numbers; give a list'),
    ({'learning_rate': {'uniform': [0, 1]}}, "'uniform' is not a kind of values"),
    ({'learning_rate': {'range': [1]}}, 'range is [1]; give [LOW, HIGH]'),
    ({'learning_rate': {'range': [1, 0.5]}}, 'is [1.0, 0.5]; LOW must be below HIGH'),
    ({'learning_rate': {'log_range': [0, 1]}}, 'begins at 0.0; it must begin above 0'),
    ({'learning_rate': {'range': [0, 'inf']}}, 'both finite'),
    ({'core': [False]}, 'core is False; put a text such as "no" in quotes'),
  ],
)
def test_a_wrong_space_is_rejected_in_one_sentence(axes, said):
  with pytest.raises(ValueError) as error:
    parse(**axes)
  assert str(error.value).startswith('mine.yaml: space') and said in str(error.value)


def test_a_grid_has_every_combination_once_in_order():
  axes = {'a': Choices(('1', '2')), 'b': Choices(('x', 'y', 'z'))}
  found = space.grid(axes, 'mine.yaml: space')
  assert [tuple(values.values()) for values in found] == [
    *(('1', 'x'), ('1', 'y'), ('1', 'z'), ('2', 'x'), ('2', 'y'), ('2', 'z'))
  ]
  with pytest.raises(ValueError, match='b is a range, which a grid cannot cover'):
    space.grid({'a': axes['a'], 'b': Range(0, 1, False, False)}, 'mine.yaml: space')


def test_draws_cover_the_ranges_and_do_not_depend_on_their_number():
  axes = {
    'core': Choices(('none', 'lstm')),
    'learning_rate': Range(1e-5, 1e-1, log=True, whole=False),
    'entropy_cost': Range(0.25, 0.75, log=False, whole=False),
    'unroll_length': Range(2, 4, log=False, whole=True),
  }
  drawn = space.draws(axes, 400, seed=3)
  assert len(drawn) == 400
  assert drawn[:7] == space.draws(axes, 7, seed=3) != space.draws(axes, 7, seed=4)
  columns = {name: [values[name] for values in drawn] for name in axes}
  rates = np.log10(columns['learning_rate'])
  assert -5 <= min(rates) < -4.8 and -1.2 < max(rates) <= -1
  # The middle of a logarithmic range; that of a uniform one would be 0.05.
  assert abs(np.median(rates) + 3) < 0.3
  assert 0.25 <= min(columns['entropy_cost']) < 0.27 and 0.73 < max(columns['entropy_cost']) <= 0.75
  counts = {length: columns['unroll_length'].count(length) for length in (2, 3, 4)}
  assert sum(counts.values()) == 400 and min(counts.values()) > 90
  assert all(isinstance(length, int) for length in columns['unroll_length'])
  assert {'none', 'lstm'} == set(columns['core'])
  assert all(
    len(f'{rate:.10g}'.replace('.', '').lstrip('0')) < 8 for rate in columns['entropy_cost']
  )


def test_a_small_space_has_no_more_trials_than_combinations():
  drawn = space.draws({'core': Choices(('none', 'lstm'))}, 50, seed=1)
  assert sorted(values['core'] for values in drawn) == ['lstm', 'none']


def test_corners_have_every_choice_and_both_ends_of_each_range():
  axes = {'core': Choices(('a', 'b', 'c')), 'rate': Range(0.1, 0.2, False, False)}
  corners = space.corners(axes)
  assert {values['core'] for values in corners} == {'a', 'b', 'c'}
  assert {values['rate'] for values in corners} == {0.1, 0.2}
  assert len(corners) == 4
