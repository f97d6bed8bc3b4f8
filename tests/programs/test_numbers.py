"""Numbers that no program takes, whichever option they are given to."""

import dataclasses
import math
import sys

import pytest

from agents.options import check_numbers, leaves, option
from environments import registry as environments
from programs import registry
from programs.options import agent_choice, configs

# Of every program with each of its agents.
OPTIONS = [
  (program, agent, leaf.name, type(leaf.value))
  for program in registry.PROGRAMS
  for agent, variant in agent_choice.variants(registry.load(program)).items()
  for leaf in leaves(variant.defaults)
  if (leaf.name, leaf.value) != ('agent', '')
]


def _make(program, agent, name, value):
  given = {name: value} | ({'agent': agent} if agent else {})
  return configs.make_config(registry.load(program), given)


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_floats_that_are_not_finite(value):
  floats = [option[:3] for option in OPTIONS if option[3] is float]
  assert len(floats) > 150
  for program, agent, name in floats:
    with pytest.raises(ValueError, match=f'^--{name} is {value}: set it to a finite number.$'):
      _make(program, agent, name, value)


def test_whole_numbers_of_more_than_64_bits():
  for program, agent, name, kind in OPTIONS:
    if kind is int:
      with pytest.raises(ValueError, match=f'^--{name} has more than 64 bits: set it to 9223'):
        _make(program, agent, name, 10**400)


@pytest.mark.parametrize('value', [0.0, sys.float_info.max])
def test_any_other_number_is_taken_or_rejected_in_one_sentence(value):
  for program, agent, name, kind in OPTIONS:
    if kind in (int, float):
      given = {name: value if kind is float else int(min(value, 2**63 - 1))}
      given |= {'agent': agent} if agent else {}
      try:
        configs.check_numbers(configs.resolve(registry.load(program), given))
      except ValueError as error:
        assert '--' in str(error) and '\n' not in str(error), (program, name)


@pytest.mark.parametrize(
  'name, value, wanted',
  [
    ('seed', -1, 'a number from 0 to 4294967295'),
    ('seed', 2**32, 'a number from 0 to 4294967295'),
    ('eval_period', -1, '0 or more'),
    ('inference_timeout_ms', 1e300, 'a number from 0 to 3600000.0'),
    ('inference_threads', 100_000, 'a number from 0 to 256'),
    ('num_peers', 0, 'a number from 1 to 1024'),
    ('record_gigabytes', 1e300, 'a number above 0 and at most 1000000.0'),
    ('samples_per_insert', 1e300, 'a number above 0 and at most 1000000.0'),
    ('update_period', 1e300, 'a number above 0 and at most 3600.0'),
  ],
)
def test_numbers_out_of_range(name, value, wanted):
  found = [(program, agent) for program, agent, option_name, _ in OPTIONS if option_name == name]
  assert found
  for program, agent in found:
    with pytest.raises(ValueError, match=f'^--{name} is .*: set it to {wanted}.$'):
      _make(program, agent, name, value)


@pytest.mark.parametrize(
  'program, name',
  [
    ('anakin', 'unroll_length'),
    *(('intrinsic_rewards', f'inner_{x}') for x in ('period', 'updates')),
  ],
)
def test_an_unroll_without_steps_is_rejected_by_its_own_name(program, name):
  with pytest.raises(ValueError, match=f'^--{name}'):
    _make(program, '', name, 0)


def test_an_option_may_be_infinite_where_its_default_is():
  @dataclasses.dataclass(frozen=True)
  class Config:
    limit: float = option(math.inf, 'no limit')
    count: int = option(3, 'of something', at_least=1)

  check_numbers(Config())
  check_numbers(Config(limit=-math.inf))
  with pytest.raises(ValueError, match='--count is 0: set it to 1 or more'):
    check_numbers(Config(count=0))


@pytest.mark.parametrize('value', ['nan', 'inf', '-inf'])
def test_options_of_environments(value):
  with pytest.raises(ValueError, match=f'time_limit={value}: time_limit must be a finite number'):
    environments.all_options('dm_control:cartpole/swingup', f'time_limit={value}')
