"""Lifetimes whose inner episodes are one choice: what is noted of them, per object and as a figure."""

import jax
import numpy as np
import pytest

from agents.anakin.environments import lifetime
from agents.intrinsic_rewards.agent import IntrinsicRewards
from agents.intrinsic_rewards.config import IntrinsicRewardsConfig
from agents.options import flatten, make
from benchmarks.learned_reward import __main__ as command
from benchmarks.learned_reward import figure
from benchmarks.learned_reward.by_object import by_object
from benchmarks.learned_reward.lifetimes import Choices, play
from nodes.learning import serialisation
from programs import intrinsic_rewards, sebulba
from rundir import final_params, run_directory

KEY = jax.random.key(0)


def played(num_lifetimes, **options):
  """Plays Random ABC by the environment's own reward."""
  environment = lifetime.make('random_abc', **options)
  config = IntrinsicRewardsConfig(inner_period=1, inner_reward='extrinsic')
  agent = IntrinsicRewards(config, environment.observation_spec, environment.action_spec)
  return play(agent, environment, jax.jit(agent.init)(KEY).params, num_lifetimes, KEY)


@pytest.mark.slow
def test_each_choice_has_the_reward_that_followed_it():
  objects, rewards = played(30, episodes=12)
  assert objects.shape == rewards.shape == (12, 30)
  for i, (low, high) in enumerate([(-1, 1), (-0.5, 0), (0, 0.5)]):
    here = objects == i
    assert here.any() and (rewards[here] >= low).all() and (rewards[here] <= high).all()
    of_lifetimes = np.where(here, rewards, np.nan)
    spread = np.nanmax(of_lifetimes, 0, initial=-9) - np.nanmin(of_lifetimes, 0, initial=9)
    assert (spread <= 0).all(), 'an object keeps its reward for a lifetime'


@pytest.mark.slow
def test_episodes_of_several_steps_are_rejected():
  with pytest.raises(ValueError, match='several steps; choose objects with size=1'):
    played(2, size=5)


def test_the_rewards_of_an_object_are_those_of_the_lifetimes_that_choose_it():
  objects = np.array([[0, 0, 0, 1], [1, 1, 0, 1]])
  rewards = np.array([[1, 2, 6, 9], [3, 5, 7, 4]], np.float32)
  a, b, c = by_object(Choices(objects, rewards), 3)
  np.testing.assert_allclose(a.share, [0.75, 0.25])
  np.testing.assert_allclose(a.mean, [3, 7])
  np.testing.assert_allclose(a.error, [np.std([1, 2, 6], ddof=1) / np.sqrt(3), np.nan])
  np.testing.assert_allclose(b.mean, [9, 4])
  np.testing.assert_allclose(b.error, [np.nan, np.std([3, 5, 4], ddof=1) / np.sqrt(3)])
  assert np.isnan(c.mean).all() and (c.share == 0).all()


def test_the_figure_is_the_same_bytes_and_names_the_objects():
  choices = Choices(np.array([[0, 1], [1, 1]]), np.ones((2, 2), np.float32))
  drawn = figure.draw('a title', by_object(choices, 3))
  assert drawn == figure.draw('a title', by_object(choices, 3))
  for words in ('a title', '>A<', '>C<', 'learned reward', 'inner episode'):
    assert words in drawn.decode()


@pytest.mark.slow
def test_the_command_draws_a_run_and_rejects_others(tmp_path, capsys):
  run_dir, output = str(tmp_path / 'run'), tmp_path / 'reward.svg'
  config = make(intrinsic_rewards.Config, env_options='episodes=3', gru_size=4).resolve()
  environment = intrinsic_rewards.environments.make(config.run.env, config.run.env_options)
  specs = environment.observation_spec, environment.action_spec
  params = jax.jit(intrinsic_rewards.make_agent(config)(*specs).init)(KEY).params
  final_params.save(run_dir, serialisation.serialise(params))
  run_directory.write_record(run_dir, 'intrinsic_rewards', {}, flatten(config))
  flags = [run_dir, '--lifetimes=5', f'--output={output}']
  assert command.main(flags) == 0
  assert b'lifetime:random_abc, 5 lifetimes' in output.read_bytes()
  run_directory.write_record(run_dir, 'sebulba', {}, flatten(sebulba.Config().resolve()))
  assert command.main(flags) == 2
  said = capsys.readouterr().err
  assert f'error: {run_dir} has trained vtrace, which learns no reward; name a run of' in said
