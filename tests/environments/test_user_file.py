"""Environments in a user's own file."""

import pathlib
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest

from environments import registry, user_file
from tests.environments.test_contract import roll, stack

ROOT = pathlib.Path(__file__).parent.parent.parent
CORRIDOR = f'{ROOT}/examples/corridor.py:make'
HEAD = """
import dm_env, numpy as np
from dm_env import specs
from environments.dm import DmEnvBatch
from environments.catch import Catch
"""


def _write(tmp_path, text, name='mine.py'):
  path = tmp_path / name
  path.write_text(HEAD + text)
  return str(path)


def test_an_environment_is_named_by_its_file_and_gets_task_and_options(tmp_path):
  text = 'def make(task, n, seed, *, rows=4):\n  return Catch(n, seed, rows, len(task))'
  name = _write(tmp_path, text) + ':make:abc'
  assert registry.make_spec(name).observations.shape == (4, 3)
  registry.trial(name, 'rows=6')
  assert registry.make(name, 2, 0, 'rows=6').observation_spec().shape == (6, 3)
  with pytest.raises(ValueError, match=r'--env_options=row: .* did you mean rows\?'):
    registry.trial(name, 'row=6')
  assert user_file.title(name) == 'mine:abc'


@pytest.mark.parametrize(
  'parameter, options, words',
  [
    ('size=None', 'size=3', '^--env_options=size=3: the default of size has no type'),
    ('size', 'size=3', '^--env=.*: the parameter size has no default; give it a bool'),
    ('size', '', 'the parameter size has no default'),
  ],
)
def test_a_keyword_without_a_type_is_no_option(tmp_path, parameter, options, words):
  name = _write(tmp_path, f'def make(task, n, seed, *, {parameter}):\n  return Catch(n, seed)')
  with pytest.raises(ValueError, match=words) as error:
    registry.trial(f'{name}:make', options)
  assert '\n' not in str(error.value)
  if '=' in parameter:
    registry.trial(f'{name}:make')


def test_a_relative_path_leads_from_the_working_directory_or_from_a_file(tmp_path, monkeypatch):
  _write(tmp_path, 'def make(task, n, seed):\n  return Catch(n, seed)')
  monkeypatch.chdir(tmp_path)
  assert user_file.absolute('mine.py:make') == f'{tmp_path}/mine.py:make'
  monkeypatch.chdir('/')
  assert (
    str(user_file.named('mine.py:make', beside=f'{tmp_path}/x.py')) == f'{tmp_path}/mine.py:make'
  )
  assert user_file.absolute('catch') == 'catch' and user_file.carried('a:b') == 'a:b'


def test_a_file_goes_along_with_its_name_to_a_process_where_it_is_not(tmp_path):
  _write(tmp_path, 'WIDTH = 3', 'beside_mine.py')
  text = """
import beside_mine
class Mine(Catch):
  def action_spec(self):
    return specs.DiscreteArray(beside_mine.WIDTH, np.int32, super().action_spec().name)
def make(task, n, seed):
  return Mine(n, seed)
"""
  name = _write(tmp_path, text) + ':make'
  by_value = cloudpickle.dumps(user_file.named(name).load())
  (tmp_path / 'beside_mine.py').unlink()
  (tmp_path / 'mine.py').unlink()
  code = (
    'import sys, cloudpickle; f = cloudpickle.load(sys.stdin.buffer); print(f("", 2, 0).spec())'
  )
  done = subprocess.run(
    [sys.executable, '-c', code], input=by_value, capture_output=True, cwd=ROOT, check=True
  )
  assert b'num_values=3' in done.stdout

  text = 'def make(task, n, seed):\n  return Catch(n, seed, 7)'
  by_text = user_file.carried(_write(tmp_path, text) + ':make')
  (tmp_path / 'mine.py').unlink()
  code = (
    'import sys, cloudpickle; from environments import registry; '
    'print(registry.make(cloudpickle.load(sys.stdin.buffer), 2, 0).spec())'
  )
  done = subprocess.run(
    [sys.executable, '-c', code],
    input=cloudpickle.dumps(by_text),
    capture_output=True,
    cwd=ROOT,
    check=True,
  )
  assert b'shape=(7, 5)' in done.stdout


GOOD = """
class Walk(dm_env.Environment):
  def reset(self):
    return dm_env.restart(np.zeros(2, np.float32))
  def step(self, action):
    return dm_env.transition(0.0, np.zeros(2, np.float32))
  def observation_spec(self):
    return specs.Array((2,), np.float32)
  def action_spec(self):
    return specs.DiscreteArray(2)
def make(task, num_envs, seed):
  return DmEnvBatch([Walk() for _ in range(num_envs)])
"""


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('def make(', 'def mak(', ['the file defines no make; did you mean mak?']),
    ('  return DmEnvBatch(', '  return DmEnvBatch)', ['unmatched', 'at line 17', 'return DmEnv']),
    ('class Walk', 'import nothing_like_it\nclass Walk', ['ModuleNotFoundError', 'at line 7']),
    ('  return DmEnvBatch(', '  return list(', ['a list', 'DmEnvBatch makes one']),
    ('dm_env.restart(', 'dm_env.begin(', ['trying it raised AttributeError', 'at line 9']),
    (
      'transition(0.0, np.zeros(2',
      'transition(0.0, np.zeros(3',
      [
        'the observation is float32 [3], but declared as float32 [2]',
        'step() of Walk, at line 10 of',
      ],
    ),
    (
      '(task, num_envs, seed)',
      '(num_envs, seed)',
      ['is make(num_envs, seed), which must take (task, num_envs, seed)'],
    ),
    (
      '  return DmEnvBatch(',
      "  import gymnasium; return gymnasium.make_vec('CartPole-v1', 2)  # (",
      [
        'a CartPoleVectorEnv',
        'environments.gym.GymnasiumBatch makes one of a vectorised environment',
      ],
    ),
    ('[Walk() for _ in range(num_envs)]', 'Walk()', ['DmEnvBatch takes a list of environments']),
    ('range(num_envs)', 'range(3)', ['num_envs is 3 where 2 were asked for']),
  ],
)
def test_a_mistake_is_reported_in_one_sentence_that_names_the_flag(tmp_path, old, new, words):
  assert old in GOOD
  name = _write(tmp_path, GOOD.replace(old, new)) + ':make'
  with pytest.raises(ValueError) as error:
    registry.trial(name)
  assert str(error.value).startswith(f'--env={name}') and '\n' not in str(error.value)
  for word in words:
    assert word in str(error.value)


def test_an_episode_that_does_not_restart_is_reported(tmp_path):
  text = GOOD.replace('dm_env.transition(', 'dm_env.termination(')
  name = _write(tmp_path, text) + ':make'
  with pytest.raises(ValueError, match='must begin the next with FIRST'):
    registry.trial(name)


@pytest.mark.parametrize(
  'method, change, words',
  [
    ('reset', 'step_type=rows.step_type + np.uint8(1)', 'reset() must return FIRST'),
    (
      'step',
      'step_type=rows.step_type * np.uint8(0)',
      'must begin the next with FIRST, and no other',
    ),
    ('step', 'reward=np.where(rows.first(), np.float32(1), rows.reward)', 'which must be 0 and 1'),
    (
      'step',
      'discount=np.where(rows.first(), np.float32(0), rows.discount)',
      'which must be 0 and 1',
    ),
    (
      'step',
      'reward=rows.reward * np.float32(np.nan)',
      'step() returned a reward that is not finite',
    ),
    ('step', 'step_type=rows.step_type + np.uint8(6)', 'the step_type 7, which must be 0, 1 or 2'),
  ],
)
def test_wrong_ends_of_episodes_and_values_are_reported(tmp_path, method, change, words):
  arguments = '(self)' if method == 'reset' else '(self, action)'
  text = (
    f'class Mine(Catch):\n  def {method}{arguments}:\n'
    f'    rows = super().{method}{arguments.replace("self, ", "").replace("self", "")}\n'
    f'    return rows._replace({change})\n'
    'def make(task, n, seed):\n  return Mine(n, seed)'
  )
  with pytest.raises(ValueError) as error:
    registry.trial(_write(tmp_path, text) + ':make')
  assert words in str(error.value) and '\n' not in str(error.value)


def test_a_game_over_that_is_no_array_is_reported(tmp_path):
  text = (
    'class Mine(Catch):\n  def step(self, action):\n'
    '    self.game_over = [False] * self.num_envs\n    return super().step(action)\n'
    'def make(task, n, seed):\n  return Mine(n, seed)'
  )
  with pytest.raises(ValueError, match=r'game_over is \[False, False\] after step\(\)'):
    registry.trial(_write(tmp_path, text) + ':make')


def test_a_good_one_passes(tmp_path):
  registry.trial(_write(tmp_path, GOOD) + ':make')


def test_an_observation_that_does_not_fit_its_spec_is_reported(tmp_path):
  text = (
    'class Mine(Catch):\n  def observation_spec(self):\n    return specs.Array((3,), np.int32)\n'
  )
  name = _write(tmp_path, text + 'def make(task, n, seed):\n  return Mine(n, seed)') + ':make'
  words = r'observation as float32 \[2, 10, 5\], .* int32 \[2, 3\] \(reset\(\) of Mine, at line'
  with pytest.raises(ValueError, match=words):
    registry.trial(name)


def test_a_label_that_there_is_not_is_reported(tmp_path):
  text = (
    'class Mine(Catch):\n  def observation_spec(self):\n    return specs.DiscreteArray(3)\n'
    '  def reset(self):\n    return super().reset()._replace(observation=np.array([2, 3], np.int32))\n'
  )
  name = _write(tmp_path, text + 'def make(task, n, seed):\n  return Mine(n, seed)') + ':make'
  with pytest.raises(ValueError, match=r'reset\(\) returned the observation \[2, 3\], .* 0 to 2'):
    registry.trial(name)


@pytest.mark.parametrize(
  'name, words',
  [
    ('/nothing/mine.py:make', ['/nothing/mine.py cannot be read: No such file']),
    ('/nothing/mine.py', ['does not say which function']),
    ('/nothing/mine.py:', ['does not say which function']),
  ],
)
def test_a_missing_file_is_reported(name, words):
  with pytest.raises(ValueError) as error:
    registry.trial(name)
  for word in (f'--env={name}', *words):
    assert word in str(error.value)


def test_the_corridor_is_a_task():
  registry.trial(CORRIDOR)
  rows = stack(roll(CORRIDOR, 'length=4', seed=1, num_steps=200)[0])
  last = rows.step_type == 2
  ends = set(zip(rows.reward[last].tolist(), rows.discount[last].tolist(), strict=True))
  assert ends == {(1.0, 0.0), (0.0, 1.0)}  # There, or cut off.
  np.testing.assert_array_equal(rows.observation.sum(-1), 1)
