"""Rows of peers: their drivers are followed to the budget or to their end, and recorded."""

import dataclasses
import json
import sys
import types

import jax
import jax.numpy as jnp
import pytest

from benchmarks.peers import systems, virtual
from benchmarks.peers.systems import Peer as System
from benchmarks.results import peer_runs, records, selection
from benchmarks.results.declared import Entry, Peer, Task
from benchmarks.results.failed import Failed
from benchmarks.results.places import Places

# Reports ten times as many steps each time; `ends` after the budget with a final evaluation.
DRIVER = """
import json, sys, time
given = json.loads(sys.argv[1])
steps = 10
while True:
  line = {'seconds': time.time() - given['started'], 'steps': steps, 'learned': 0}
  print(json.dumps(line | {'episode_return': steps / 10 * given.get('factor', 1)}), flush=True)
  if given.get('ends') and steps >= given['num_steps']:
    final = {'mean': 7.0, 'standard_error': 0.5, 'episodes': given['episodes'], 'protocol': 'greedy'}
    print(json.dumps({'final': final}), flush=True)
    break
  if given.get('breaks'):
    raise ValueError('no such game')
  steps *= 10
  time.sleep(0.05)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Returns a function that runs the fake driver as a row's peer, and returns the record."""
  driver = tmp_path / 'driver.py'
  driver.write_text(DRIVER)
  monkeypatch.setattr(virtual, 'python', lambda peer: sys.executable)
  monkeypatch.setattr(virtual, 'install', lambda *arguments: None)
  monkeypatch.setattr(systems, 'versions', lambda peer: {'jax': '1'})
  places = Places(str(tmp_path / 'runs'), str(tmp_path / 'docs'))

  def run(given, ends, scripts=None):
    system = System(str(driver), '3.10', (), script='checkout', side_by_side=False, ends=ends)
    monkeypatch.setitem(systems.PEERS, 'fake', system)
    row = Peer(label='fake', peer='fake', env='cartpole', budget=1000, given=given)
    entry = Entry(Task(name='cartpole', title='', about='', rows=(row,), episodes=20), row)
    selection.entries([entry.task])
    scripts = {'fake': str(tmp_path)} if scripts is None else scripts
    peer_runs.run(entry, row, 3, places, scripts, '')
    return records.of_row(entry, places)[3]

  return run


def test_a_driver_that_ends_is_recorded_with_its_final_evaluation(run):
  record = run({'ends': True, 'factor': 2}, ends=True)
  assert record.final == {
    'mean': 7.0,
    'standard_error': 0.5,
    'episodes': 20,
    'protocol': 'greedy',
  }
  assert record.curve.actor_steps == [10, 100, 1000]
  assert record.curve.mean_return == [2.0, 20.0, 200.0]
  assert record.totals['actor_steps'] == 1000 and record.attempts[0]['exit_code'] == 0
  assert record.versions == {'jax': '1', 'fake': 'unknown'}
  assert record.settings['given'] == {'ends': True, 'factor': 2}


def test_a_driver_that_never_ends_is_stopped_at_the_budget(run):
  record = run({}, ends=False)
  assert record.totals['actor_steps'] >= 1000
  assert record.final['mean'] == record.curve.mean_return[-1]
  assert 'training episodes' in record.final['protocol']


@pytest.mark.parametrize(
  'given, ends, scripts, said',
  [
    ({'breaks': True}, True, None, r'exit code 1: ValueError: no such game \(.*cartpole/fake/3\)'),
    ({'ends': True}, False, None, 'the driver ended before its steps'),
    ({}, True, {}, '--scripts=fake=PATH, the path of its checkout'),
  ],
)
def test_a_driver_that_fails_is_reported_with_its_last_line(run, given, ends, scripts, said):
  with pytest.raises(Failed, match=said):
    run(given, ends, scripts)


def test_a_peer_that_is_compared_side_by_side_gets_the_common_settings():
  row = Peer(label='x', peer='rllib', env='cartpole', budget=9, given={'batch_size': 8})
  task = Task(name='cartpole', title='', about='', rows=(row,))
  given = peer_runs.driver_settings(Entry(task, row), row, 5)
  assert (given['env'], given['seed'], given['batch_size']) == ('cartpole', 5, 8)
  assert given['torso'] == 'mlp' and given['num_steps'] == 9
  more = {'game': {'full_action_space': False}, 'options': {'rollout': 128}}
  row = dataclasses.replace(row, env='atari:Pong', given={'batch_size': 8, **more})
  given = peer_runs.driver_settings(Entry(task, row), row, 5)
  assert given['options'] == {'rollout': 128} and given['batch_size'] == 8
  assert not given['game']['full_action_space'] and given['game']['sticky_actions'] == 0.25


class Ladder:
  """Episodes of as many steps as their start says; the reward of a step is the action."""

  def action_space(self, params):
    return types.SimpleNamespace(n=3)

  def reset(self, key, params):
    state = jax.random.randint(key, (), 2, 5)
    return state[None].astype(float), state

  def step(self, key, state, action, params):
    left = state - 1
    done = left == 0
    # An environment of gymnax resets itself; the next episode must not count.
    left = jnp.where(done, 9, left)
    return left[None].astype(float), left, action.astype(float), done, {}


class Second:
  """A policy whose most probable action is 1."""

  def __init__(self, n, activation):
    assert (n, activation) == (3, 'relu')

  def apply(self, params, observation):
    logits = jnp.broadcast_to(params, (*observation.shape[:1], 3))
    return types.SimpleNamespace(mode=lambda: jnp.argmax(logits, -1)), None


@pytest.fixture
def driver(monkeypatch):
  """The driver of purejaxrl."""
  monkeypatch.syspath_prepend(str(systems._DRIVERS))
  import purejaxrl_driver

  return purejaxrl_driver


def test_purejaxrls_policy_is_played_on_one_whole_episode_of_each_environment(driver):
  limits = types.SimpleNamespace(max_steps_in_episode=6)
  ppo = types.SimpleNamespace(
    gymnax=types.SimpleNamespace(make=lambda name: (Ladder(), limits)),
    FlattenObservationWrapper=lambda env: env,
    ActorCritic=Second,
  )
  config = {'ENV_NAME': 'Ladder', 'ACTIVATION': 'relu'}
  returns = driver.evaluate(ppo, config, jnp.array([0.0, 2.0, 1.0]), episodes=40, seed=1)
  assert len(returns) == 40 and set(returns) == {2.0, 3.0, 4.0}


@pytest.fixture
def without_stand_ins():
  """Removes the modules that a driver puts in place of others."""
  before = {name: sys.modules.get(name) for name in ('hydra', 'omegaconf', 'wandb', 'pqn_minatar')}
  path = list(sys.path)
  yield
  sys.path[:] = path
  for name, module in before.items():
    sys.modules.pop(name, None)
    if module:
      sys.modules[name] = module


def test_purejaxql_reports_its_updates_and_plays_greedily(
  monkeypatch, tmp_path, capsys, without_stand_ins
):
  monkeypatch.syspath_prepend(str(systems._DRIVERS))
  import purejaxql_driver
  from progress import Progress

  monkeypatch.setattr(sys, '__stdout__', sys.stdout)
  (tmp_path / 'purejaxql').mkdir()
  (tmp_path / 'purejaxql' / 'pqn_minatar.py').write_text(
    'import hydra, wandb\nfrom omegaconf import OmegaConf\n'
    '@hydra.main(version_base=None)\ndef main(config): pass\n'
    'def finish(n, length):\n'
    '  row = {"env_step": n, "returned_episode_returns": 2.5, "returned_episode_lengths": length}\n'
    '  wandb.log(row, step=n)\n'
  )
  pqn = purejaxql_driver.import_pqn(str(tmp_path), Progress(started=0.0, period=0.0))
  pqn.finish(8, 0.0)
  pqn.finish(16, 4.0)
  lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
  assert [(line['steps'], line['episode_return']) for line in lines] == [(8, None), (16, 2.5)]

  class QNetwork:
    def __init__(self, n):
      assert n == 3

    def apply(self, variables, observation, train):
      assert not train and variables['batch_stats'] == {}
      return jnp.broadcast_to(variables['params'], (*observation.shape[:1], 3))

  limits = types.SimpleNamespace(max_steps_in_episode=6)
  pqn.gymnax = types.SimpleNamespace(make=lambda name: (Ladder(), limits))
  pqn.QNetwork = QNetwork
  trained = types.SimpleNamespace(params=jnp.array([0.0, 1.0, 2.0]), batch_stats={})
  returns = purejaxql_driver.evaluate(pqn, 'Ladder', trained, episodes=40, seed=1)
  assert len(returns) == 40 and set(returns) == {4.0, 6.0, 8.0}


def test_purejaxrls_updates_are_reported_with_the_mean_of_the_last_hundred_episodes(driver, capsys):
  from progress import Progress

  out = sys.__stdout__
  try:
    sys.__stdout__ = sys.stdout
    progress = Progress(started=0.0, period=0.0)
  finally:
    sys.__stdout__ = out
  listener = driver.Listener(progress, num_envs=8)
  listener.hear(8, 0, 0.0)
  listener.hear(16, 50, 50.0)
  listener.hear(24, 60, 120.0)
  listener.hear(32, 60, 180.0)
  progress.conclude([1.0, 3.0], 'greedy')
  *lines, final = map(json.loads, capsys.readouterr().out.splitlines())
  assert [line['steps'] for line in lines] == [8, 16, 24, 32]
  assert [line['episode_return'] for line in lines] == [
    None,
    1.0,
    pytest.approx(170 / 110),
    pytest.approx(300 / 120),
  ]
  assert final['final'] == {
    'mean': 2.0,
    'standard_error': 1.0,
    'episodes': 2,
    'protocol': 'greedy',
  }


def test_the_callback_sums_an_updates_episodes_up_within_the_compiled_training(driver):
  heard = []
  listener = driver.Listener(None, num_envs=2)
  listener.hear = lambda *values: heard.append([float(value) for value in values])
  callback = listener.callback(jax.debug.callback)
  info = {
    'returned_episode': jnp.array([[True, False], [False, True]]),
    'returned_episode_returns': jnp.array([[4.0, 9.0], [4.0, 1.5]]),
    'timestep': jnp.array([[5, 5], [6, 6]]),
  }
  jax.jit(lambda info: callback(None, info))(info)
  jax.effects_barrier()
  assert heard == [[12.0, 2.0, 5.5]]
