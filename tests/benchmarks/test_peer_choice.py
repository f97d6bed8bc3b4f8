"""Which systems a comparison of peers runs, and each of them at which settings."""

import pytest

from benchmarks.peers import best, choosing, differences, scripts, settings, systems


def names(asked=(), scripts=(), best_settings=False, **given):
  paths = {name: '.' if name == 'stoix' else 'script.py' for name in scripts}
  return choosing.names(asked, paths, best_settings, given)


def test_packages_and_what_the_user_has_a_copy_of_are_compared():
  assert names() == [
    'sebulba',
    'impala',
    'anakin',
    'sample_factory',
    'rllib',
    'pufferlib',
  ]
  assert names(['impala'], ['stoix', 'cleanrl']) == ['impala', 'stoix', 'cleanrl']
  assert names(['cleanrl', 'impala'], ['cleanrl']) == ['cleanrl', 'impala']


def test_a_package_that_does_not_play_the_game_is_left_out(monkeypatch):
  monkeypatch.setitem(systems.PEERS, 'rllib', systems.Peer('', '', (), torsos=('mlp',)))
  assert names(env='atari:Pong') == ['sebulba', 'impala', 'sample_factory', 'pufferlib']


def test_a_task_with_continuous_actions_is_for_the_peers_that_have_them():
  assert names(env=settings.HALF_CHEETAH) == ['sebulba', 'impala', 'sample_factory', 'pufferlib']
  assert choosing.left_out(['impala'], settings.make({'env': settings.HALF_CHEETAH})) == []


def test_peers_of_the_environment_that_need_a_copy_are_named():
  assert choosing.left_out(['impala', 'stoix'], settings.make({})) == ['cleanrl']
  pong = settings.make({'env': 'atari:Pong'})
  assert choosing.left_out(['impala'], pong) == ['cleanba', 'cleanrl', 'stoix']


@pytest.mark.parametrize(
  'arguments, given, said',
  [
    ({'asked': ['acme']}, {}, '--systems=acme is none of'),
    ({'asked': ['anakin']}, {'env': 'atari:Pong'}, '--systems=anakin is for --env=cartpole'),
    ({'asked': ['purejaxrl']}, {}, '--systems=purejaxrl is none of'),
    ({'asked': ['cleanrl']}, {}, '--systems=cleanrl needs --scripts=cleanrl=PATH'),
    ({'asked': ['impala', 'impala']}, {}, '--systems=impala,impala names one twice'),
    ({'scripts': ['rllib']}, {}, '--scripts=rllib=PATH is of none of cleanba, cleanrl, stoix'),
    ({'scripts': ['cleanba']}, {}, '--env=cartpole with the torso mlp is not for cleanba'),
    ({'scripts': ['stoix']}, {'env': 'atari:Pong', 'torso': 'impala'}, '--env=atari:Pong with the'),
    ({'scripts': ['cleanrl']}, {'env': 'atari:Pong', 'torso': 'impala'}, '--env=atari:Pong'),
    ({'scripts': ['stoix']}, {'batch_size': 24}, '--batch_size=24 does not divide the 64'),
    ({'best_settings': True}, {'env': 'atari:Pong'}, '--best_settings'),
    (
      {'asked': ['rllib']},
      {'env': settings.HALF_CHEETAH},
      '--env=gymnasium:HalfCheetah-v5 has con',
    ),
  ],
)
def test_systems_that_cannot_be_compared_are_rejected_with_a_sentence(arguments, given, said):
  with pytest.raises(ValueError, match=f'^{said}'):
    names(**arguments, **given)


def test_a_checkout_is_a_directory_and_a_script_is_a_file():
  for peer, path in (('stoix', __file__), ('cleanrl', '.')):
    with pytest.raises(ValueError, match=f'^--scripts={peer}={path} must be the path of the'):
      choosing.names([], {peer: path}, False, {})


def test_paths_of_scripts_are_absolute_and_exist(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'script.py').touch()
  assert scripts.parse(['cleanrl=script.py']) == {'cleanrl': str(tmp_path / 'script.py')}
  for item in ('cleanrl', 'cleanrl=nowhere'):
    with pytest.raises(ValueError, match=f'^--scripts={item} must be NAME=PATH'):
      scripts.parse([item])


def test_best_settings_are_further_runs_of_the_same_systems():
  assert names(['impala', 'rllib', 'pufferlib'], best_settings=True) == [
    'impala',
    'rllib',
    'pufferlib',
    'impala_best',
    'pufferlib_best',
  ]
  assert best.system('pufferlib_best') == 'pufferlib' and best.system('impala') == 'impala'


def test_best_sizes_replace_the_common_ones_and_nothing_else():
  common, own = settings.make({'discount': 0.9}), best.common('stoix_best', {'discount': 0.9})
  assert (own.envs_per_actor, own.batch_size) == (128, 64)
  changed = {name for name, value in vars(own).items() if getattr(common, name) != value}
  assert changed == {'envs_per_actor', 'batch_size'}
  assert best.common('stoix', {'discount': 0.9}) == common


def test_our_best_settings_are_flags_of_our_programs():
  given = best.options('sebulba_best', {'queue_size': 64})
  flags = settings.options_of('sebulba', given)
  assert (flags['inference_nodes'], flags['envs_per_actor'], flags['queue_size']) == (1, 1024, 64)


def test_anakin_gets_the_common_settings_and_as_many_environments():
  made = settings.make({'num_actors': 3, 'envs_per_actor': 8, 'discount': 0.9})
  options = settings.own_options('anakin', made, {'queue_size': 64})
  assert (options['env'], options['num_envs'], options['discount']) == (
    'gymnax:CartPole-v1',
    24,
    0.9,
  )
  assert options.keys().isdisjoint({'num_actors', 'batch_size', 'queue_size'})


@pytest.mark.parametrize('name', best.BEST)
def test_every_system_with_best_settings_can_have_them(name):
  made = best.common(best.named(name), {})
  peer = systems.PEERS.get(name)
  if peer and peer.whole_batches:
    assert made.num_actors * made.envs_per_actor % made.batch_size == 0
  line, *_ = differences.lines([best.named(name)], settings.make({}))
  assert line.startswith(f'{name}_best: as {name}, with ') and 'batch_size=' in line
