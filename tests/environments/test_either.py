"""Environments of programs that play those in JAX and those of actors."""

import pytest

from environments import either, jax_registry, registry
from tests.programs_under_test import ROOT


@pytest.mark.parametrize(
  'name, expected',
  [
    ('catch', jax_registry),  # Both have it.
    ('gymnax:CartPole-v1', jax_registry),
    ('cartpole', registry),
    ('gymnasium:Acrobot-v1', registry),
    ('nothing', registry),
    (f'{ROOT}/examples/corridor.py:make', registry),
    (f'{ROOT}/examples/doors_in_jax.py:make', jax_registry),
  ],
)
def test_each_environment_is_of_one_kind(name, expected):
  assert either.of(name) is expected
  assert either.one(either, name) is expected
  for given in (registry, jax_registry):
    assert either.one(given, name) is given


def test_it_knows_the_families_of_both_and_their_options():
  assert either.families().keys() == registry.families().keys() | jax_registry.families().keys()
  assert either.all_options('cartpole') == {'max_episode_steps': 500}
  assert either.all_options('minatar:Breakout') == jax_registry.all_options('minatar:Breakout')


@pytest.mark.parametrize(
  'name, words', [('atri:Pong', 'did you mean atari'), ('/nothing/x.py:make', 'cannot be read')]
)
def test_mistakes_are_named_once(name, words):
  with pytest.raises(ValueError, match=words) as error:
    either.check(name)
  assert str(error.value).startswith(f'--env={name}')
