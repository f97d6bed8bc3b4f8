"""Evolver and workers, without a launcher."""

import dataclasses
import functools
import threading
from concurrent import futures

import numpy as np
import pytest

from agents.anakin.environments import gymnax, pgx
from agents.anakin.environments.catch import Catch
from agents.evolution.agent import Evolution
from agents.evolution.config import EvolutionConfig
from agents.seeding import Seed
from environments import registry
from nodes.evolution.episodes import CompiledEpisodes, SteppedEpisodes
from nodes.evolution.options import WorkerOptions
from nodes.evolution_worker import EvolutionWorker
from nodes.evolver import Evolver, Generations
from nodes.runtime import lifecycle, rpc
from nodes.runtime.options import RunOptions
from rundir import final_params, saved_params
from tests.waiting import DEADLINE, wait_until

CONFIG = EvolutionConfig(num_pairs=16, mlp_sizes=(8,))
NORMALIZED = dataclasses.replace(CONFIG, normalize_observations=True)
JAX, NORMALIZED_JAX = (
  functools.partial(CompiledEpisodes, functools.partial(Evolution, config), Catch, 1000)
  for config in (CONFIG, NORMALIZED)
)


def stepped(env='catch', config=CONFIG, max_steps=1000):
  maker = functools.partial(registry.make, env)
  return SteppedEpisodes(functools.partial(Evolution, config), maker, max_steps)


class Client:
  """Calls a worker in this process from a thread, as Courier does."""

  def __init__(self, worker):
    self.futures, self._worker = self, worker
    self._threads = futures.ThreadPoolExecutor(4)

  def evaluate(self, vector, seeds):
    return self._threads.submit(self._worker.evaluate, vector, seeds)


def start(node):
  def run():
    try:
      node.run()
    except BaseException as error:
      thread.error = error

  thread = threading.Thread(target=run, daemon=True)
  thread.error = None
  thread.start()
  return thread


class Monitor:
  """A monitor's client that notes the end of training."""

  def __init__(self):
    self.futures, self.finished = self, threading.Event()

  def report_training_finished(self, node, values):
    self.finished.set()
    return self.report()

  def report(self, *values):
    future = futures.Future()
    future.set_result(0.0)
    return future

  count = report


def train(run_dir, num_workers, num_steps=2000, make_episodes=JAX, virtual_workers=4):
  """Trains to the end, or goes on from the checkpoint of an earlier end; returns the counters."""
  workers = [EvolutionWorker(make_episodes, None, f'worker/{k}') for k in range(num_workers)]
  threads = [start(worker) for worker in workers]
  monitor, stop = Monitor(), threading.Event()
  training = Generations(
    make_episodes,
    [Client(worker) for worker in workers],
    monitor,
    WorkerOptions(num_workers, virtual_workers),
    RunOptions(num_steps=num_steps, run_dir=str(run_dir)),
    CONFIG.num_pairs,
    Seed(1),
    'evolver/0',
    stop,
  )
  threads.append(start(training))

  def check():
    errors = [thread.error for thread in threads if thread.error]
    assert not errors, errors

  wait_until(monitor.finished.is_set, check)
  stop.set()
  threads[-1].join(DEADLINE)
  return training.published[0]


def read(run_dir):
  with open(final_params.path(str(run_dir)), 'rb') as f:
    return f.read()


@pytest.mark.parametrize('make_episodes', [JAX, NORMALIZED_JAX], ids=['raw', 'normalised'])
def test_several_workers_equal_one_bit_for_bit(tmp_path, make_episodes):
  counts = train(tmp_path / 'one', 1, make_episodes=make_episodes)
  assert train(tmp_path / 'three', 3, make_episodes=make_episodes) == counts
  assert read(tmp_path / 'one') == read(tmp_path / 'three')
  assert counts['actor_steps'] >= 2000 and counts['environment_frames'] == counts['actor_steps']
  # Catch has nine steps, and a generation sixteen pairs.
  assert counts['learner_steps'] * 16 * 2 * 9 == counts['actor_steps']


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
  whole, parts = tmp_path / 'whole', tmp_path / 'parts'
  assert train(whole, 2, num_steps=4000)['learner_steps'] == 14
  assert train(parts, 2)['learner_steps'] == 7
  half = read(parts)
  assert saved_params.read(str(parts), 'newest').counts['learner_steps'] == 7
  assert train(parts, 1, num_steps=4000)['learner_steps'] == 14
  assert read(whole) == read(parts) != half


def test_environments_of_the_registry_depend_on_seeds_alone():
  player, other = stepped(), stepped()
  agent = player.agent
  vector = np.zeros(agent.flat(agent.init(Seed(1).key()).params).shape, np.float32)
  seeds = np.array([[7, 1], [7, 2], [9, 3]], np.uint32)
  go = lambda: False  # noqa: E731
  returns, lengths, _ = player.play(vector, seeds, go)
  assert set(np.unique(returns)) <= {-1.0, 1.0} and (lengths == 9).all()
  player.play(vector, seeds + 100, go)
  for again in (player.play(vector, seeds, go), other.play(vector, seeds, go)):
    np.testing.assert_array_equal(again[:2], (returns, lengths))
  with pytest.raises(lifecycle.Stopped):
    player.play(vector, seeds, lambda: True)
  cut, cut_lengths, _ = stepped(max_steps=4).play(vector, seeds, go)
  assert (cut_lengths == 4).all() and not cut.any()


def test_a_game_of_two_players_is_played_against_the_opponent_of_evaluations():
  make_agent = functools.partial(Evolution, CONFIG)
  player = CompiledEpisodes(make_agent, functools.partial(pgx.make, 'tic_tac_toe'), 1000)
  vector = np.asarray(player.agent.flat(player.agent.init(Seed(1).key()).params))
  seeds = np.random.default_rng(0).integers(1 << 32, size=(32, 2), dtype=np.uint32)
  returns, _, _ = player.play(vector, seeds, lambda: False)
  # In self-play one of the players wins, so no return would be below 0.
  assert {-1.0, 1.0} <= set(np.unique(returns))


def test_what_the_policies_see_counts_until_their_episodes_end():
  player = stepped('cartpole', NORMALIZED)
  agent = player.agent
  vector = np.asarray(agent.flat(agent.init(Seed(1).key()).params))
  seeds = np.array([[7, 1], [7, 2], [9, 3]], np.uint32)
  _, lengths, seen = player.play(vector, seeds, lambda: False)
  assert len(set(lengths.ravel())) > 1
  count, mean, variance = np.split(seen, [1, 5])
  assert count == lengths.sum() and (np.abs(mean) < 1).all() and (variance > 0).all()
  seen = seen + np.repeat([0.0, 1.0, 0.0], [1, 4, 4])  # As if all had been seen elsewhere.
  returns = np.arange(6.0).reshape(3, 2)
  state, _ = agent.evolve(agent.init(Seed(1).key()), seeds, returns, seen[None])
  found = state.params['observation_statistics']
  np.testing.assert_allclose(found['mean'], mean + 1, rtol=1e-5)
  np.testing.assert_allclose(found['variance'], variance, rtol=1e-5)


def test_workers_play_environments_of_the_registry(tmp_path):
  counts = train(tmp_path, 2, make_episodes=stepped, virtual_workers=2)
  assert counts['learner_steps'] == 7


class Raising(Catch):
  def reset(self, key):
    raise RuntimeError('a mistake of the environment')


class NotFinite(Catch):
  def step(self, state, action, key):
    state, timestep = super().step(state, action, key)
    return state, timestep._replace(reward=timestep.reward + np.nan)


@pytest.mark.parametrize(
  'environment, words',
  [
    (Raising, 'a mistake of the environment'),
    (NotFinite, 'an episode of worker/0 returned a value that is not finite'),
  ],
)
def test_an_environment_that_fails_ends_its_worker_and_the_evolver_asks_again(environment, words):
  make = functools.partial(
    CompiledEpisodes, functools.partial(Evolution, CONFIG), environment, 1000
  )
  agent = make().agent
  vector = np.asarray(agent.flat(agent.init(Seed(1).key()).params))
  worker = EvolutionWorker(make, None, 'worker/0')
  thread = start(worker)
  with pytest.raises(RuntimeError) as raised:
    worker.evaluate(vector, np.zeros((2, 2), np.uint32))
  assert rpc.is_transient(raised.value)
  thread.join(DEADLINE)
  assert words in str(thread.error)


def test_the_evaluator_gets_the_newest_parameters():
  evolver = Evolver(JAX, [], None, WorkerOptions(), RunOptions(), 16, Seed(1))
  evolver._training = type('Training', (), {'published': ({'learner_steps': 3}, {'w': np.ones(2)})})
  evolver._gate.open()
  counts, params = evolver.get_params()
  assert counts == {'learner_steps': 3}
  version, again, same = evolver.get_variables(['policy_version', 'params', 'counts'])
  assert (version, same) == (3, counts)
  np.testing.assert_array_equal(again['w'], params['w'])


def learned(episodes, generations, flip=False):
  """Returns the mean return of the last generation, in one process."""
  import jax

  from agents.evolution import strategy

  agent, evolve = episodes.agent, jax.jit(episodes.agent.evolve)
  state, key = agent.init(jax.random.split(Seed(1).key())[0]), Seed(2).key()
  for generation in range(generations):
    seeds = np.asarray(strategy.seeds(key, generation, 64))
    returns, _, seen = episodes.play(np.asarray(agent.flat(state.params)), seeds, lambda: False)
    state, _ = evolve(state, seeds, returns[:, ::-1] if flip else returns, seen[None])
  return returns.mean()


@pytest.mark.slow
@pytest.mark.trains
def test_it_learns_cartpole_and_a_wrong_sign_does_not():
  make_agent = functools.partial(Evolution, EvolutionConfig())
  episodes = CompiledEpisodes(make_agent, lambda: gymnax.make('CartPole-v1'), 1000)
  assert learned(episodes, 15) > 300
  assert learned(episodes, 15, flip=True) < 30
