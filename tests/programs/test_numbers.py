"""Numbers that no program takes, whichever option they are given to."""

import dataclasses
import math

import pytest

from agents.options import check_numbers, option
from environments import registry as environments
from programs import registry

FLOATS = [
  (program, field.name)
  for program in registry.PROGRAMS
  for field in dataclasses.fields(registry.load(program).Config)
  if isinstance(field.default, float)
]


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_floats_that_are_not_finite(value):
  assert len(FLOATS) > 50
  for program, name in FLOATS:
    config = registry.load(program).Config(**{name: value})
    with pytest.raises(ValueError, match=f'^--{name} is {value}: set it to a finite number.$'):
      config.resolve().validate()


@pytest.mark.parametrize('program', registry.PROGRAMS)
@pytest.mark.parametrize(
  'name, value, wanted',
  [
    ('seed', -1, '0 or more'),
    ('seed', 2**32, '4294967295 or less'),
    ('eval_period', -1, '0 or more'),
    ('inference_timeout_ms', 1e300, '3600000.0 or less'),
    ('update_period', 1e300, '3600.0 or less'),
  ],
)
def test_numbers_out_of_range(program, name, value, wanted):
  config = registry.load(program).Config
  if name in {field.name for field in dataclasses.fields(config)}:
    with pytest.raises(ValueError, match=f'^--{name} is .*: set it to {wanted}.$'):
      config(**{name: value}).resolve().validate()


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
