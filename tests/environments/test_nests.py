"""Nests of arrays, in an order that is also JAX's."""

import collections

import dm_env
import jax
import numpy as np
import pytest

from agents import spaces
from environments import nests

NEST = {'b': (1, {'z': 2, 'y': 3}), 'a': 4, 'c': 5}


def test_leaves_have_names_and_the_order_of_jax():
  named = nests.named(NEST, 'observation')
  assert list(named.values()) == nests.leaves(NEST) == jax.tree.leaves(NEST) == [4, 1, 3, 2, 5]
  assert list(named) == [
    *('observation/a', 'observation/b/0', 'observation/b/1/y', 'observation/b/1/z'),
    'observation/c',
  ]
  assert nests.named(7, 'observation') == {'observation': 7}
  assert nests.like(NEST, nests.leaves(NEST)) == NEST


def test_the_arrays_of_a_timestep_and_back():
  array = np.zeros(2)
  single = dm_env.TimeStep(1, 2, 3, array)
  assert nests.arrays_of(single) is single
  nested = dm_env.TimeStep(1, 2, 3, {'b': array, 'a': (array, 5)})
  arrays = nests.arrays_of(nested)
  assert arrays[:3] == (1, 2, 3) and arrays[3] is array and arrays[4:] == (5, array)
  assert dm_env.TimeStep(*nests.fields_of(nested.observation, arrays)) == nested


@pytest.mark.parametrize(
  'nest, name', [(collections.OrderedDict(a=1), 'OrderedDict'), ({'a': [1]}, 'list'), ((), 'tuple')]
)
def test_a_nest_is_of_dictionaries_and_tuples(nest, name):
  nests.check(NEST, 'it')
  with pytest.raises(ValueError, match=f'it has a {name} of'):
    nests.check(nest, 'it')


def test_the_key_of_an_action_mask_is_that_of_the_agents():
  assert nests.ACTION_MASK == spaces.MASK
