"""A reward posterior over a plane of observations: its values, and the command that draws it."""

import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.avril.agent import Posterior
from agents.options import flatten
from benchmarks.learned_reward import __main__ as command
from benchmarks.learned_reward import posterior
from environments.base import describe
from nodes.learning import serialisation
from programs import offline
from programs.options import configs
from rundir import final_params, run_directory
from tests import expert


def test_the_posterior_is_that_of_observations_whose_other_components_have_their_recorded_mean():
  def reward(params, timestep):
    x = timestep.observation
    return Posterior(params * x[:, 0] + x[:, 1], x[:, 2])

  recorded = np.array([[5.0, 0.0, -1.0], [7.0, 4.0, 1.0]])
  plane = posterior.over_plane(types.SimpleNamespace(reward=reward), 10.0, recorded, (2, 1))
  np.testing.assert_allclose([plane.x[0], plane.x[-1], plane.y[0], plane.y[-1]], [-2, 2, -2, 6])
  x, y = np.meshgrid(plane.x, plane.y)
  np.testing.assert_allclose(plane.mean, 60 + y, rtol=1e-6)
  np.testing.assert_allclose(plane.std, np.exp(x), rtol=1e-5)
  np.testing.assert_array_equal(plane.recorded, [[-1, 0], [1, 4]])
  drawn = posterior.draw('a title', plane, (2, 1))
  assert drawn == posterior.draw('a title', plane, (2, 1))
  for words in ('a title', 'observation[2]', 'standard deviation'):
    assert words in drawn.decode()


def test_a_component_that_was_always_the_same_has_a_range_too():
  agent = types.SimpleNamespace(
    reward=lambda _, t: Posterior(jnp.zeros(len(t.reward)), jnp.zeros(len(t.reward)))
  )
  plane = posterior.over_plane(agent, None, np.full((3, 2), 2.0), (0, 1))
  assert (plane.x[0], plane.x[-1]) == (1.0, 3.0)


@pytest.mark.slow
def test_the_command_draws_a_run_of_avril_and_names_what_is_wrong(tmp_path, capsys):
  data, _ = expert.record(tmp_path / 'recorded', episodes=1)
  run_dir, output = str(tmp_path / 'run'), tmp_path / 'posterior.svg'
  given = {'env': 'cartpole', 'offline_data': data, 'run_dir': run_dir}

  def record(agent):
    config = configs.make_config(offline, given | {'agent': agent})
    spec, _ = describe(offline.environments.maker(config.run.env))
    built = offline.make_agent(config)(spec.observations, spec.actions)
    params = jax.jit(built.init)(jax.random.key(0)).params
    final_params.save(run_dir, serialisation.serialise(params))
    run_directory.write_record(run_dir, 'offline', {'agent': agent}, flatten(config))

  def error(*flags):
    assert command.main([run_dir, f'--output={output}', *flags]) == 2
    return capsys.readouterr().err

  record('avril')
  assert command.main([run_dir, '--components=2,3', f'--output={output}']) == 0
  assert b'AVRIL on cartpole, 500 transitions' in output.read_bytes()
  for components in ('2', '2,2', '1,4', '1,x', '1,2,3'):
    assert f'--components={components} must be two different numbers from 0 to 3' in error(
      f'--components={components}'
    )
  record('bc')
  assert error().endswith(
    'has trained bc, which learns no reward; name a run of --program=intrinsic_rewards, or of '
    '--program=offline --agent=avril.\n'
  )
  record('avril')
  shutil.rmtree(data)
  assert 'recorded does not exist; name the directory of a run.' in error()
