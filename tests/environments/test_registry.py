import subprocess
import sys

import pytest

from environments import options as env_options
from environments import registry
from environments.seeding import spawn

FACTORIES = """
from environments.catch import Catch


def typed(task, num_envs, seed, *, flag=False, count=1, rate=0.5, label='a'):
  catch = Catch(num_envs, seed)
  catch.seen = {'task': task, 'flag': flag, 'count': count, 'rate': rate, 'label': label}
  return catch


def more(task, num_envs, seed, *, count=1, **others):
  catch = Catch(num_envs, seed)
  catch.seen = {'count': count, **others}
  return catch


def texts(task, num_envs, seed, **others: str):
  catch = Catch(num_envs, seed)
  catch.seen = others
  return catch
"""


@pytest.fixture
def factories(tmp_path):
  path = tmp_path / 'factories.py'
  path.write_text(FACTORIES)
  return path


@pytest.mark.parametrize(
  ('name', 'options', 'sentence'),
  [
    (
      'atri:Pong',
      '',
      "--env=atri:Pong: there is no environment family 'atri'; did you mean atari?",
    ),
    (
      'nothing',
      '',
      'the families are atari, bsuite, cartpole, catch, dm_control, gymnasium, minatar, recall',
    ),
    ('', '', "--env=: there is no environment family ''"),
    ('catch:1', '', '--env=catch:1: catch has no tasks; write --env=catch'),
    ('cartpole:v1', '', '--env=cartpole:v1: cartpole has no tasks'),
    ('atari', '', '--env=atari needs a task, for example --env=atari:Pong'),
    ('atari:Pnog', '', '--env=atari:Pnog: atari has no Pnog; did you mean Pong?'),
    ('atari:ms_pacmann', '', 'did you mean MsPacman?'),
    ('bsuite', '', 'for example --env=bsuite:catch/0'),
    ('bsuite:memory_lem/5', '', 'did you mean memory_len/5?'),
    ('bsuite:catch', '', 'ids are <experiment>/<index>'),
    ('gymnasium:CartPol-v1', '', 'did you mean CartPole-v1?'),
    ('gymnasium:nomodule:X-v0', '', 'gymnasium has no nomodule:X-v0'),
    ('gymnasium:.foo:X-v0', '', 'gymnasium has no .foo:X-v0'),
    ('gymnasium::X-v0', '', 'gymnasium has no :X-v0'),
    ('gymnasium:a:b:X-v0', '', 'gymnasium has no a:b:X-v0'),
    ('dm_control', '', 'for example --env=dm_control:cartpole/swingup'),
    (
      'dm_control:cartpole/swing',
      '',
      'dm_control has no cartpole/swing; did you mean cartpole/swingup?',
    ),
    ('dm_control:cartpole', '', 'tasks are <domain>/<task>'),
    ('dm_control:lqr/lqr_2_1', '', 'its actions have no bounds; use another task'),
    ('dm_control:cartpole/swingup', 'action_repeat=0', 'action_repeat must be at least 1'),
    ('dm_control:cartpole/swingup', 'time_limit=-1', 'time_limit must be at least 0'),
    ('minatar', '', 'for example --env=minatar:Breakout'),
    ('minatar:Pong', '', '--env=minatar:Pong: minatar has no Pong'),
    ('minatar:breakout', '', 'did you mean Breakout?'),
    ('minatar:Breakout', 'sticky_actions=2', 'sticky_actions must be in [0, 1]'),
    ('minatar:Breakout', 'max_episode_steps=0', 'max_episode_steps must be at least 1'),
    ('catch', 'row=3', '--env_options=row: catch has no such option; did you mean rows?'),
    ('catch', 'row=3', 'its options and their defaults: rows=10, columns=5'),
    ('bsuite:catch/0', 'rows=3', 'its options and their defaults: results_dir=, episodes=0'),
    ('catch', 'rows=ten', '--env_options=rows=ten: rows must be an integer'),
    ('catch', 'rows=1', '--env_options=rows=1: rows must be from 2 to 1000'),
    ('catch', 'columns=1001', 'columns must be from 1 to 1000'),
    ('catch', 'rows=1000000000000000000000', 'rows must be at most 2,147,483,647'),
    ('atari:Pong', 'frame_cap=10000000000', 'frame_cap must be at most 2,147,483,647'),
    ('atari:Pong', 'noop_max=10001', 'noop_max must be from 0 to 10000'),
    ('recall', 'jitter=100000000000000000000', 'jitter must be at most'),
    ('recall', 'num_cues=1001', 'num_cues must be from 2 to 1000'),
    ('catch', 'rows', '--env_options=rows: write it as key=value'),
    ('catch', 'rows=3,rows=4', '--env_options=rows is given twice'),
    ('atari:Pong', 'maxpool=maybe', 'maxpool must be true or false'),
    ('atari:Pong', 'sticky_actions=x', 'sticky_actions must be a number'),
    ('cartpole', 'max_episode_steps=0', 'max_episode_steps must be at least 1'),
    ('gymnasium:Acrobot-v1', 'max_episode_steps=-1', 'max_episode_steps must be at least 0'),
  ],
)
def test_mistakes_are_reported_with_the_flag_and_the_fix(name, options, sentence):
  for refuse in (registry.trial, registry.make_spec):
    with pytest.raises(ValueError) as error:
      refuse(name, options)
    assert sentence in str(error.value)
    assert '\n' not in str(error.value)
  with pytest.raises(ValueError):
    registry.make(name, 1, 0, options)


def test_good_names_pass():
  registry.trial('catch', '')
  registry.trial('catch', ' rows=4 , columns=3 ')
  registry.trial('bsuite:umbrella_length/3', '')


@pytest.mark.parametrize(
  'options, changes, merged',
  [
    ('', '', ''),
    ('rows=4,columns=3', '', 'rows=4,columns=3'),
    ('rows=4, columns=3', ' columns = 5', 'rows=4,columns = 5'),
    ('rows=4', 'rows=5,columns=3,rows', 'rows=5,columns=3,rows'),
    ('url=a=b', 'uri=c=d', 'url=a=b,uri=c=d'),
  ],
)
def test_changes_to_options_leave_the_others(options, changes, merged):
  assert env_options.merge(options, changes) == merged


def test_options_are_parsed_in_the_types_of_their_defaults(factories):
  environment = registry.make(
    f'{factories}:typed:a:b/c', 2, 0, 'flag=True,count=-3,rate=1e-3,label=x=y'
  )
  assert environment.num_envs == 2
  expected = {'task': 'a:b/c', 'flag': True, 'count': -3, 'rate': 1e-3, 'label': 'x=y'}
  assert environment.seen == expected and type(environment.seen['flag']) is bool
  default = registry.make(f'{factories}:typed', 1, 0, 'flag=no').seen
  assert default == {'task': '', 'flag': False, 'count': 1, 'rate': 0.5, 'label': 'a'}


def test_a_factory_with_keywords_takes_any_option(factories):
  options = 'count=2,size=3,rate=0.5,flag=false,word=x=y'
  seen = registry.make(f'{factories}:more', 1, 0, options).seen
  assert seen == {'count': 2, 'size': 3, 'rate': 0.5, 'flag': False, 'word': 'x=y'}
  assert registry.make(f'{factories}:texts', 1, 0, 'size=3').seen == {'size': '3'}


def test_a_family_is_tried_in_another_process():
  assert registry.check('catch', 'rows=3').observations.shape == (3, 5)
  with pytest.raises(ValueError, match=r'^--env_options=row: catch has no such option'):
    registry.check('catch', 'row=3')


def test_every_family_has_a_line_of_help():
  families = registry.families()
  assert list(families)[:4] == ['atari', 'bsuite', 'cartpole', 'catch']
  assert list(families)[4:] == ['dm_control', 'gymnasium', 'minatar', 'recall']
  assert all(families.values())


def test_bad_batches_are_rejected():
  with pytest.raises(ValueError, match='at least 1 environment'):
    registry.make('catch', 0, 0)
  with pytest.raises(ValueError, match='seed'):
    registry.make('catch', 1, -1)


def test_seeds_of_nearby_batches_are_disjoint_and_do_not_depend_on_the_size():
  seeds = [seed for batch in range(50) for seed in spawn(batch, 20)]
  assert len(set(seeds)) == len(seeds)
  assert all(0 <= seed < 2**31 for seed in seeds)
  assert spawn(3, 5) == spawn(3, 20)[:5]


@pytest.mark.slow
@pytest.mark.parametrize(
  ('names', 'absent'),
  [
    (['catch'], ['jax', 'tensorflow', 'gymnasium', 'bsuite', 'pandas', 'ale_py']),
    (
      ['cartpole', 'bsuite:catch/0', 'gymnasium:Acrobot-v1', 'atari:Pong'],
      ['jax', 'tensorflow', 'reverb'],
    ),
  ],
)
def test_an_actor_imports_no_more_than_its_environment(names, absent):
  code = (
    'import sys; from environments import registry\n'
    f'for name in {names}: registry.trial(name)\n'
    f'print([name for name in {absent} if name in sys.modules])'
  )
  process = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
  assert process.returncode == 0, process.stderr
  assert process.stdout == '[]\n'
  assert process.stderr == ''
