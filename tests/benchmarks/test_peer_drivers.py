"""The drivers of peers: what they give to the peers and understand of them; without any peer."""

import io
import json
import sys
import types

import jax
import jax.numpy as jnp
import pytest

from benchmarks.peers import best, settings, systems

SCRIPT = """
import dataclasses, sys

@dataclasses.dataclass
class Args:
  num_envs: int = 8

class Network:
  size = 'the script'

if __name__ == '__main__':
  ran = (Network.size, sys.argv[1:], Args().num_envs)
"""


@pytest.fixture(autouse=True)
def drivers(monkeypatch):
  """Imports find the drivers."""
  monkeypatch.syspath_prepend(str(systems._DRIVERS))


@pytest.fixture
def reports(monkeypatch):
  """Returns a function that returns what drivers have reported."""
  import progress

  made = progress.Progress.__init__
  monkeypatch.setattr(
    progress.Progress, '__init__', lambda self, started, period=0.0: made(self, started, period)
  )
  out = io.StringIO()
  monkeypatch.setattr(sys, '__stdout__', out)
  return lambda: [json.loads(line) for line in out.getvalue().splitlines()]


def test_printed_progress_is_reported_and_other_lines_are_dropped(reports):
  from printed import Listener
  from progress import Progress

  listener = Listener(Progress(0.0))
  print('global_step=5120, avg_episodic_return=-20.5, rollout_time=1.5', file=listener)
  print('SPS: 300', file=listener)
  (report,) = reports()
  assert (report['steps'], report['learned'], report['episode_return']) == (5120, 5120, -20.5)


def test_cleanba_gets_the_settings_as_flags():
  import cleanba_driver

  made = settings.make({'env': 'atari:Pong', 'num_actors': 2, 'envs_per_actor': 16})
  flags = cleanba_driver.arguments(vars(made))
  assert {'--env-id=Pong-v5', '--local-num-envs=16', '--num-minibatches=1'} <= set(flags)


def test_cleanrl_gets_the_settings_as_flags():
  import cleanrl_driver

  flags = cleanrl_driver.arguments(vars(settings.make({'num_actors': 3, 'batch_size': 24})))
  assert {'--num-envs=96', '--num-minibatches=4', '--num-steps=20', '--no-anneal-lr'} <= set(flags)
  flags = cleanrl_driver.arguments(vars(settings.make({'env': 'atari:Pong'})))
  assert '--env-id=Pong-v5' in flags


def test_cleanrls_names_can_be_replaced_between_its_definitions_and_its_program(
  tmp_path, monkeypatch
):
  import cleanrl_driver

  script = tmp_path / 'script.py'
  script.write_text(SCRIPT)
  monkeypatch.setattr(sys, 'argv', ['script', '--seed=1'])
  module, program = cleanrl_driver.define(str(script))
  assert not hasattr(module, 'ran')
  module.Network = types.SimpleNamespace(size='ours')
  exec(compile(program, str(script), 'exec'), vars(module))
  assert module.ran == ('ours', ['--seed=1'], 8)


def test_cleanrls_network_for_cartpole_has_the_common_layers():
  import cleanrl_driver

  network = cleanrl_driver.Mlp(settings.make({}).mlp_sizes)
  params = network.init(jax.random.PRNGKey(0), jnp.ones((1, 4)))['params']
  assert [layer['kernel'].shape for layer in params.values()] == [(4, 128), (128, 64)]
  assert network.apply({'params': params}, jnp.ones((3, 4))).shape == (3, 64)


class Envs:
  """Three environments: one goes on, one is terminated, one is truncated."""

  num_envs = 3

  def xla(self):
    truncated = jnp.array([False, False, True])

    def step(handle, action):
      done = jnp.array([False, True, True])
      return handle, (action, jnp.ones(3), done, {'TimeLimit.truncated': truncated})

    return 'handle', None, None, step


def test_cleanrl_gets_for_cartpole_what_it_expects_of_atari():
  import cleanrl_driver

  envs = cleanrl_driver.CartPole(Envs())
  handle, _, _, step = envs.xla()
  handle, (_, _, _, info) = step(handle, jnp.zeros(3))
  assert envs.num_envs == 3 and handle == 'handle'
  assert info['reward'].tolist() == [1, 1, 1] and info['terminated'].tolist() == [0, 1, 0]
  assert (1 - info['TimeLimit.truncated']).tolist() == [1, 1, 0]


def test_cleanrl_plays_the_game_with_the_common_settings_instead_of_its_own(monkeypatch):
  import cleanrl_driver

  envpool = types.SimpleNamespace(make=lambda env_id, **given: (env_id, given))
  monkeypatch.setitem(sys.modules, 'envpool', envpool)
  made = vars(settings.make({'env': 'atari:Pong'}))
  own = {'env_type': 'gym', 'num_envs': 8, 'seed': 3, 'episodic_life': True, 'reward_clip': True}
  env_id, given = cleanrl_driver.make_environments(made, 'Pong-v5', **own)
  assert env_id == 'Pong-v5' and given['num_envs'] == 8
  assert given['episodic_life'] is False and given['repeat_action_probability'] == 0.25
  assert given['max_episode_steps'] == 27000


def test_stoix_gets_the_settings_as_values_of_its_configuration():
  import stoix_driver

  made = vars(settings.make({'num_actors': 2, 'batch_size': 16})) | {'started': 5.0}
  values = stoix_driver.values(made)
  assert values['arch.total_num_envs'] == 64 and values['system.num_minibatches'] == 4
  assert values['arch.actor.actor_per_device'] == 2 and values['system.rollout_length'] == 20
  assert values['network.shared_network.pre_torso']['layer_sizes'] == (128, 64)
  assert values['logger.loggers.peers']['_target_'] == 'stoix_driver.Reporter'


def test_stoix_plays_the_game_with_the_common_settings_and_network():
  import stoix_driver
  import stoix_networks

  made = vars(settings.make({'env': 'atari:Pong'})) | {'started': 5.0}
  values = stoix_driver.values(made)
  assert values['env.scenario.name'] == 'Pong-v5'
  assert values['env.kwargs']['repeat_action_probability'] == 0.25
  torso = values['network.shared_network.pre_torso']
  assert torso.pop('_target_') == 'stoix_networks.Nature'
  network = stoix_networks.Nature(**torso)
  images = jax.ShapeDtypeStruct((5, 2, 4, 84, 84), jnp.uint8)
  embeddings, params = jax.eval_shape(network.init_with_output, jax.random.PRNGKey(0), images)
  assert embeddings.shape == (5, 2, 512)
  assert params['params']['Dense_0']['kernel'].shape == (3136, 512)


def test_stoixs_updates_are_reported_with_the_returns_of_its_actor(reports):
  import stoix_driver

  def log(kind, data, step):
    reporter.log_dict(data, step, 0, types.SimpleNamespace(value=kind))

  reporter = stoix_driver.Reporter(0.0, base_exp_path='results')
  log('trainer', {'total_loss': 1.0}, 1280)
  for mean, count in ((10.0, 60), (30.0, 40)):
    data = {'episode_return': {'mean': mean}, 'num_completed_episodes_in_rollout_batch': count}
    log('actor', data, 1300)
  log('misc', {'num_rollouts': 3}, 1400)
  log('trainer', {'total_loss': 1.0}, 2560)
  first, last = reports()
  assert (first['steps'], first['episode_return']) == (1280, None)
  assert (last['steps'], last['episode_return']) == (2560, pytest.approx(18.0))


def test_pufferlib_gets_the_common_settings_over_its_own():
  from pufferlib_settings import configuration

  own = {'optimizer': 'muon', 'learning_rate': 0.015, 'clip_coef': 0.2, 'device': 'cuda'}
  made = configuration(vars(settings.make({'batch_size': 8})), own)
  assert (made['optimizer'], made['learning_rate'], made['clip_coef']) == ('adam', 0.0006, 0.2)
  assert (made['device'], made['bptt_horizon'], made['minibatch_size']) == ('cpu', 20, 160)


def test_pufferlib_learns_at_its_best_settings_as_it_does_by_default():
  from pufferlib_settings import configuration

  given = best.options('pufferlib_best', {}) | vars(best.common('pufferlib_best', {}))
  own = {'optimizer': 'muon', 'learning_rate': 0.015, 'device': 'cuda'}
  made = configuration(given, own)
  assert (made['optimizer'], made['learning_rate'], made['device']) == ('muon', 0.015, 'cpu')
  assert (made['bptt_horizon'], made['minibatch_size']) == (64, 32768)
