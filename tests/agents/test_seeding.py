"""Seeds by name: which are equal, which differ, and that they stay what they are."""

import pickle

import jax
import numpy as np
import pytest

from agents.seeding import Seed
from tests.agents.subprocesses import run_python

ACTOR = Seed(1).child('actor', 3)


def words(key):
  return tuple(np.asarray(jax.random.key_data(key)).ravel().tolist())


def test_a_seed_is_the_same_in_every_process_and_version():
  assert ACTOR.number() == 1554780665
  assert words(ACTOR.key()) == (3109561330, 644146997)
  assert pickle.loads(pickle.dumps(ACTOR)) == ACTOR


@pytest.mark.parametrize(
  'other',
  [
    Seed(2).child('actor', 3),
    Seed(1 + 2**32).child('actor', 3),
    Seed(1).child('actor', '3'),
    Seed(1).child('actor3'),
    Seed(1).child(3, 'actor'),
    Seed(1).child('actor', 4),
    Seed(1).child('actor', 3 + 2**32),
    Seed(1).child('actor'),
    ACTOR.child(0),
    ACTOR.child(''),
  ],
)
def test_another_root_or_path_is_another_seed(other):
  assert other.number() != ACTOR.number()
  assert not set(words(other.key())) & set(words(ACTOR.key()))


def test_children_of_children_are_named_by_their_path():
  assert Seed(1).child('actor').child(3) == ACTOR


@pytest.mark.slow
def test_many_seeds_share_nothing():
  seeds = [Seed(root).child(name, i) for root in range(4) for name in 'ab' for i in range(500)]
  numbers = np.array([seed.number() for seed in seeds])
  assert len(set(numbers)) == 4000 and numbers.min() >= 0 and numbers.max() < 2**31
  assert abs(numbers.mean() / 2**31 - 0.5) < 0.03
  assert len({words(seed.key()) for seed in seeds[::10]}) == 400


def test_no_child_has_the_key_that_jax_makes_of_its_parents():
  parent, children = ACTOR.key(), [words(ACTOR.child(i).key()) for i in range(4)]
  made = [*jax.random.split(parent, 4), *(jax.random.fold_in(parent, i) for i in range(4)), parent]
  assert not {words(key) for key in made} & set(children)


@pytest.mark.slow
def test_a_number_needs_no_jax_and_a_key_suits_any_generator():
  script = (
    "import sys; from agents.seeding import Seed; Seed(1).number(); print('jax' in sys.modules)"
  )
  assert run_python('-c', script).strip() == 'False'
  script = 'import jax; from agents.seeding import Seed; print(jax.random.bits(Seed(1).key()) > 0)'
  assert run_python('-c', script, JAX_DEFAULT_PRNG_IMPL='rbg').strip() == 'True'
