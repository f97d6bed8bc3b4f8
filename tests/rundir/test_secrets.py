"""Which options are taken for secrets."""

import pytest

from rundir import secrets


@pytest.mark.parametrize(
  'text, masked',
  [
    ('--env_options=rows=5,api_key=abc', '--env_options=rows=5,api_key=***'),
    ('--env_options=api_key=abc,rows=5', '--env_options=api_key=***,rows=5'),
    ('--api_token=abc,def', '--api_token=***'),
    ('token=a/b:c,columns=3', 'token=***,columns=3'),
    ('--accessToken=abc', '--accessToken=***'),
    ('DB_PASSWORD=a=b,c=d', 'DB_PASSWORD=***,c=d'),
    ('--num_tokens=5', '--num_tokens=5'),
    ('monkey=1,keyboard=de', 'monkey=1,keyboard=de'),
    ('launch.py', 'launch.py'),
  ],
)
def test_values_of_secrets_are_masked_and_others_are_not(text, masked):
  assert secrets.masked(text) == masked
  assert secrets.masked_command(['x', text]) == ['x', masked]


def test_the_next_word_may_be_the_value():
  command = ['launch.py', '--api_key', 'abc', '--env_options', 'secret=1,rows=3', '--token']
  words = ['launch.py', '--api_key', '***', '--env_options', 'secret=***,rows=3', '--token']
  assert secrets.masked_command(command) == words


def test_an_option_may_hold_one():
  assert secrets.masked_options({'rows': 5, 'api_key': 'abc'}) == {'rows': 5, 'api_key': '***'}
  assert secrets.holds_any({'env_options': 'rows=1,token=abc'})
  assert secrets.holds_any({'hub_token': 'abc'})
  assert not secrets.holds_any({'hub_token': '', 'env_options': 'rows=1', 'num_steps': 3})


def test_the_name_of_an_option_tells_that_its_value_is_a_secret():
  assert secrets.shown('api_key', 'hunter2') == secrets.MASK
  assert secrets.shown('env_options', 'rows=5,api_key=hunter2') == 'rows=5,api_key=***'
  assert secrets.shown('num_tokens', 7) == '7'
