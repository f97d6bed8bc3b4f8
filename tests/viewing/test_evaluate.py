import json
import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import evaluate
from agents import shapes
from agents.anakin.loop import AnakinLoop
from agents.options import flatten, make
from agents.seeding import Seed
from agents.types import FIRST, LAST, Timestep
from environments import jax_registry, registry
from nodes.learning import serialisation
from programs import anakin, r2d2, runs, sebulba
from rundir import checkpoints, final_params, run_directory, saved_params
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE
from viewing import evaluation


def play(capsys, *flags):
  """Runs evaluate.py; returns what it printed."""
  code = evaluate.main([str(flag) for flag in flags])
  captured = capsys.readouterr()
  assert code == 0, captured.err
  return captured.out


def score(capsys, tmp_path, *flags):
  """Runs evaluate.py; returns what it wrote as JSON."""
  path = tmp_path / 'score.json'
  play(capsys, *flags, f'--json={path}')
  return json.loads(path.read_text())


def returns_by_hand(run_dir, num_envs, episodes_each, seed):
  run = runs.recorded_run(str(run_dir))
  environment = registry.make('catch', num_envs, seed.number())
  agent = run.module.make_agent(run.config)(
    environment.observation_spec(), environment.action_spec()
  )
  params = serialisation.params(saved_params.read(str(run_dir), 'final'), shapes.params(agent))
  keys, explore = jax.random.split(jax.random.key(0), num_envs), jnp.zeros(num_envs)
  core_state, timestep = agent.initial_core_state(num_envs), environment.reset()
  total, returns = np.zeros(num_envs), [[] for _ in range(num_envs)]
  while min(map(len, returns)) < episodes_each:
    output = agent.act(params, core_state, Timestep(*timestep), explore, keys)
    core_state, timestep = output.core_state, environment.step(np.asarray(output.action))
    for i in range(num_envs):
      total[i] = 0 if timestep.step_type[i] == FIRST else total[i] + timestep.reward[i]
      if timestep.step_type[i] == LAST:
        returns[i].append(total[i])
  return [value for episodes in returns for value in episodes[:episodes_each]]


def test_the_score_is_that_of_a_loop_by_hand_and_names_its_protocol(finished_run, tmp_path, capsys):
  flags = (finished_run, '--episodes=24', '--num_envs=8', '--seed=3')
  found = score(capsys, tmp_path, *flags)
  returns = returns_by_hand(finished_run, 8, 3, Seed(3).child('evaluate', 'environments'))
  assert found['score']['mean'] == pytest.approx(np.mean(returns))
  assert found['score']['standard_error'] == pytest.approx(np.std(returns, ddof=1) / np.sqrt(24))
  assert (found['score']['episodes'], found['score']['mean_length']) == (24, 9)
  protocol = found['protocol']
  assert protocol['env_options'] == {'rows': 10, 'columns': 5}
  assert (protocol['env'], protocol['action_repeat'], protocol['exploration']) == ('catch', 1, 0)
  summary = json.loads((finished_run / 'summary.json').read_text())
  assert found['parameters']['actor_steps'] == summary['actor_steps']
  text = play(capsys, *flags)
  for words in (
    'greedy, raw rewards',
    '3 from each of 8',
    'catch  rows=10,columns=5',
    'final.msgp',
  ):
    assert words in text


def test_a_sampled_score_says_so(finished_run, tmp_path, capsys):
  found = score(capsys, tmp_path, finished_run, '--episodes=8', '--sample')
  assert (found['protocol']['sample'], found['protocol']['exploration']) == (True, 1)
  text = play(capsys, finished_run, '--episodes=8', '--sample')
  assert 'the exploration of training, raw rewards' in text and 'greedy' not in text


def test_every_kept_checkpoint_can_be_evaluated(finished_run, tmp_path, capsys):
  kept = checkpoints.steps(checkpoints.directory(str(finished_run)))
  assert kept
  for steps, file in kept.items():
    found = score(capsys, tmp_path, finished_run, '--episodes=4', f'--checkpoint={steps}')
    assert found['parameters']['file'] == file
    assert found['parameters']['learner_steps'] == steps
  newest = score(capsys, tmp_path, finished_run, '--episodes=40', '--checkpoint=newest')
  assert newest['parameters']['learner_steps'] == max(kept)
  # The last checkpoint was written with the final parameters.
  assert newest['score'] == score(capsys, tmp_path, finished_run, '--episodes=40')['score']


@pytest.mark.parametrize(
  'flags, frames', [((), 3 * 10), (('--episodes=2',), 3 * 10), (('--video_frames=17',), 17)]
)
def test_a_video_has_a_frame_for_each_row(finished_run, tmp_path, capsys, flags, frames):
  path = tmp_path / 'out.gif'
  text = play(capsys, finished_run, '--episodes=6', '--num_envs=2', f'--video={path}', *flags)
  assert f'{frames} frames' in text
  assert ('--video_frames' in text) == ('--video_frames=17' in flags)
  with Image.open(path) as video:
    assert video.n_frames == frames
    board = np.asarray(video.convert('L'))[: 10 * 32]
  assert (board[16::32, 30 + 32 * 2 + 16] > 200).tolist()[-1]  # The paddle begins in the middle.


def make_run(run_dir, module, name, **options):
  """Makes the directory of a run that has kept nothing yet; returns its config."""
  config = make(module.Config, **options).resolve()
  run_directory.write_record(str(run_dir), name, options, flatten(config))
  return config


@pytest.mark.slow
def test_a_recurrent_agent_of_r2d2_plays_atari_by_the_protocol_that_is_asked_for(tmp_path, capsys):
  options = {
    'env': 'atari:Pong',
    'env_options': 'noop_max=30',
    'core_size': 8,
    'torso': 'mlp',
  }
  config = make_run(tmp_path, r2d2, 'r2d2', **options)
  environment = registry.make_spec(config.run.env, config.run.env_options)
  agent = r2d2.make_agent(config)(environment.observations, environment.actions)
  params = jax.device_get(jax.jit(agent.init)(jax.random.key(0)).params)
  final_params.save(str(tmp_path), serialisation.serialise(params))
  flags = ['--episodes=1', '--env_options=frame_cap=80,sticky_actions=0']
  found = score(capsys, tmp_path, tmp_path, *flags, f'--video={tmp_path / "out.gif"}')
  protocol = found['protocol']
  assert protocol['exploration'] == pytest.approx(0.001)
  assert protocol['action_repeat'] == 4
  options = {'frame_cap': 80, 'sticky_actions': 0.0, 'noop_max': 30, 'full_action_space': True}
  assert options.items() <= protocol['env_options'].items()
  assert found['score']['mean_length'] == 20
  with Image.open(tmp_path / 'out.gif') as video:
    assert video.n_frames == 3 * 21  # Of --video_episodes.


@pytest.mark.slow
def test_anakins_checkpoints_and_its_environments(tmp_path, capsys):
  options = {'env': 'catch', 'env_options': 'rows=5', 'num_envs': 2, 'mlp_sizes': (8,)}
  config = make_run(tmp_path, anakin, 'anakin', **options)
  environment = jax_registry.make(config.run.env, config.run.env_options)
  agent = anakin.make_agent(config)(environment.observation_spec, environment.action_spec)
  state = AnakinLoop(agent, environment, 2, jax.local_devices()[:1], 1).init(jax.random.key(1))
  counts = {'actor_steps': 7, 'environment_frames': 7, 'learner_steps': 5}
  content = serialisation.serialise(jax.device_get(state))
  checkpoints.write(checkpoints.directory(str(tmp_path)), counts, content, keep=1)
  found = score(capsys, tmp_path, tmp_path, '--episodes=8')
  assert found['parameters'].items() >= counts.items()
  final_params.save(str(tmp_path), serialisation.serialise(jax.device_get(state.learner.params)))
  final = score(capsys, tmp_path, tmp_path, '--episodes=8', '--checkpoint=final')
  assert final['parameters']['file'].endswith('final.msgpack')
  assert found['score'] == final['score']
  assert (found['score']['episodes'], found['score']['mean_length']) == (8, 4)


@pytest.mark.slow
def test_a_game_is_evaluated_against_the_opponent():
  seed = Seed(0).child('evaluate')
  options = 'opponent=perfect'
  game = evaluation.make_environment(jax_registry, 'pgx:tic_tac_toe', options, 8, seed)
  pieces = [timestep.observation.any(-1).sum((1, 2)) for timestep in (game.reset(), corner(game))]
  assert set(pieces[0]) == {0, 1}  # Both players start.
  assert (pieces[1] == pieces[0] + 2).all()
  expected = {'opponent': 'random', 'random_moves': 0}
  assert jax_registry.all_options('pgx:tic_tac_toe') == expected


def corner(game):
  """Moves into the first free corner."""
  board = game.reset().observation.any(-1)
  return game.step(np.where(board[:, 0, 0], 2, 0).astype(np.int32))


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--episodes=0'], ['--episodes=0', 'at least 1']),
    (['--checkpoint=3'], ['--checkpoint=3', 'final, ']),
    (['--checkpoint=best'], ['--checkpoint=best', 'final, ']),
    (['--video=out.mp4'], ['--video=out.mp4', '.gif']),
    (['--video=/proc/nothing/out.gif'], ['--video=/proc/nothing/out.gif', 'cannot be written']),
    (['--json=/'], ['--json=/', 'cannot be written']),
    (['--seed=-1'], ['--seed=-1']),
    (['--num_envs=100000000'], ['--num_envs=100000000', 'at most']),
  ],
)
def test_flags_that_make_no_sense_are_rejected_in_one_sentence(finished_run, flags, words, capsys):
  _assert_refused([str(finished_run), *flags], words, capsys)


@pytest.mark.parametrize(('platform', 'code'), [('cuda', 2), ('nonsense', 2), ('cpu', 0)])
def test_devices_that_jax_does_not_find_are_rejected_in_one_sentence(finished_run, platform, code):
  done = subprocess.run(
    [sys.executable, 'evaluate.py', str(finished_run), '--episodes=2'],
    cwd=ROOT,
    env=os.environ | {'JAX_PLATFORMS': platform, 'CUDA_VISIBLE_DEVICES': ''},
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert done.returncode == code, done.stderr
  if code:
    assert f'error: JAX_PLATFORMS={platform} names a device' in done.stderr.splitlines()[-1]
    assert 'Traceback' not in done.stderr


def test_a_directory_without_a_run_or_parameters_is_rejected(tmp_path, capsys):
  _assert_refused([str(tmp_path / 'none')], ['no such directory'], capsys)
  _assert_refused([str(tmp_path)], [str(tmp_path), 'no config.json'], capsys)
  make_run(tmp_path, r2d2, 'r2d2')
  _assert_refused([str(tmp_path)], ['no parameters yet', 'checkpoint'], capsys)


def test_your_own_program_without_make_agent_is_rejected(tmp_path, capsys):
  file = tmp_path / 'silent.py'
  file.write_text('from programs.sebulba import Config, make_program\n')
  make_run(tmp_path, sebulba, f'{file}:make_program')
  _assert_refused([str(tmp_path)], ['no make_agent(config)', str(file)], capsys)


def test_damaged_parameters_and_those_of_another_network_are_rejected(
  finished_run, tmp_path, capsys
):
  run_dir = tmp_path / 'run'
  shutil.copytree(finished_run, run_dir)
  record = json.loads((run_dir / 'config.json').read_text())
  changed = {**record, 'config': {**record['config'], 'mlp_sizes': [7]}}
  (run_dir / 'config.json').write_text(json.dumps(changed))
  _assert_refused(
    [str(run_dir)], ['final.msgpack', 'but this agent expects', 'another config'], capsys
  )
  (run_dir / 'config.json').write_text(json.dumps(record))
  file = run_dir / 'params' / 'final.msgpack'
  file.write_bytes(file.read_bytes()[:-100])
  _assert_refused([str(run_dir)], [str(file), 'damaged'], capsys)
  changed = {**record, 'config': {**record['config'], 'warp_factor': 9}}
  (run_dir / 'config.json').write_text(json.dumps(changed))
  _assert_refused([str(run_dir)], ['another version', 'warp_factor'], capsys)


def _assert_refused(flags, words, capsys):
  assert evaluate.main(flags) == 2
  captured = capsys.readouterr()
  assert captured.out == ''
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err
