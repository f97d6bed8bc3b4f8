"""The flags that launch.py refuses before anything starts."""

import errno
import os
import re

import pytest

from launchers import child_process
from programs.options import flags as config_flags
from tests.programs_under_test import ROOT, launch, run_main


def _slow(*values):
  """Returns parameters of a case that imports environments in JAX."""
  return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--program=alphago'], ['--program=alphago', 'sebulba']),
    (['--env=katch'], ['--env', 'catch']),
    (['--env=atari:Pongg'], ['--env', 'Pong']),
    (['--env_options=speed=3'], ['--env_options', 'speed']),
    (['--batch_size=5', '--learner_devices=0,1'], ['--batch_size=5', '--learner_devices']),
    (['--preset=publish'], ['--preset=publish', '--env=catch', 'there are: default, none.']),
    (['--preset=published'], ['but for atari', 'there are: default, none.']),
    (
      ['--program=r2d2', '--env=atari:Pong', '--preset=small'],
      ['--preset=small', 'there are: default, published, none.'],
    ),
    (
      ['--agent=ppo', '--env=atari:Pong', '--preset=published'],
      ['--preset=published', 'there are: default, none.'],
    ),
    (['--num_epochs=2'], ['--num_epochs is not an option of --agent=vtrace']),
    (['--agent=ppo', '--vtrace_lambda=1'], ['--vtrace_lambda is not an option of --agent=ppo']),
    (['--agent=sac'], ['not trained by this program, but by --program=sac; use that']),
    (['--agent=vtarce'], ['--agent=vtarce is unknown to this program; did you mean vtrace?']),
    (['--agent=x'], ['there are: vtrace, ppo, pqn, and path/to/mine.py:MyAgent.']),
    (['--program=sebula'], ['--program=sebula is unknown; did you mean sebulba?']),
    (['--agent=ppo', '--batch_size=6'], ['--num_minibatches=4', '6 unrolls', '--batch_size=6']),
    (
      ['--agent=ppo', '--learner_devices=0,1', '--num_minibatches=16'],
      ['--num_minibatches=16', '16 unrolls', '2 learner device(s)'],
    ),
    (
      ['--agent=ppo', '--program=anakin', '--minibatch_of=transitions', '--num_minibatches=3'],
      ['--num_minibatches=3', '2048 transitions', '--num_envs=64'],
    ),
    (
      ['--agent=ppo', '--minibatch_of=transitions', '--core=lstm'],
      ["--core is 'lstm'", '--minibatch_of=unrolls'],
    ),
    (['--cpu_cores=-1'], ['--cpu_cores', '-1', '0 or more']),
    (['--presets', '--program=alphago'], ['--program=alphago', 'sebulba']),
    (['--presets', '--env=katch'], ['--env=katch', 'did you mean catch']),
    (['--presets', '--program=anakin', '--env=atari:Pong'], ['--env=atari:Pong', 'gymnax']),
    (['--presets', '--preset=small'], ['--preset=small', 'published']),
    (['--presets', '--agent=dqn'], ['--agent=dqn', 'muzero, ppo, pqn, qt_opt, r2d2, sac, vtrace']),
    (['--presets', '--program=r2d2', '--agent=ppo'], ['--agent=ppo', 'there are: r2d2']),
    (['--presets', '--program=anakin', '--num_actors=2'], ['--num_actors', 'not an option']),
    (['--queue_size=8'], ['--queue_size=8', 'at least 16']),
    (['--envs_per_actor=9', '--env_groups=2'], ['--envs_per_actor=9', '--env_groups=2']),
    (['--inference_batch_size=4'], ['--inference_batch_size=4', '32']),
    (['--inference_batch_size=100000000'], ['--inference_batch_size=1', 'the 74 environments']),
    *(
      (flags, [f'{flags[-1]}', f'has no effect without {needed};'])
      for needed, *flags in (
        ('--record_unrolls', '--record_gigabytes=5.0'),
        ('--video_period', '--video_frames=17'),
        ('--video_period', '--videos_kept=2'),
        ('--bellman_updaters', '--program=qt_opt', '--bellman_updaters=0', '--train_size=1000'),
        ('--offline_data', '--program=qt_opt', '--online_share=0.0'),
        ('--offline_data', '--program=qt_opt', '--online_ramp=7'),
        ('--offline_data', '--program=qt_opt', '--offline_size=7'),
        ('--reanalyse_nodes', '--program=muzero', '--reanalyse_size=100'),
      )
    ),
    (['--record_unrolls', '--record_gigabytes=0'], ['--record_gigabytes', 'above 0']),
    (['--program=qt_opt', '--reward_scale=0'], ['--reward_scale', 'above 0']),
    (
      ['--env=bsuite:catch/0', '--env_options=results_dir=x'],
      ['results_dir=x', 'use --num_actors=1 --envs_per_actor=1 --eval_envs=0.'],
    ),
    (['--lp_launch_type=vertex_ai'], ['--lp_launch_type=vertex_ai', 'local_mp', '--launcher']),
    (['--slurm_options=--time=60'], ['--slurm_options is for --launcher=slurm', 'local']),
    (['--launcher=ray', '--image=x'], ['--image is for --launcher=k8s', '--launcher=ray']),
    (['--launcher=slurm', '--ray_address=auto'], ['--ray_address is for --launcher=ray']),
    (
      ['--launcher=slurm', '--dry_run', '--slurm_accelerator_options=--partition=a'],
      ["--slurm_accelerator_options='--partition=a'", 'use --slurm_options'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--dry_run', '--k8s_volume=My Volume'],
      ['--k8s_volume=My Volume', 'PersistentVolumeClaim'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--dry_run', '--k8s_queue=My queue'],
      ['--k8s_queue=My queue', 'LocalQueue'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--dry_run', '--k8s_priority=urgent'],
      ['--k8s_priority', '--k8s_queue', 'priority_class'],
    ),
    (['--actor_devices=0,0'], ['--actor_devices', 'distinct']),
    (['--actor_devices=x'], ['--actor_devices', 'whole numbers']),
    (
      ['--program=r2d2', '--replay_size=50', '--min_replay_size=100'],
      ['--replay_size=50', '--min_replay_size=100'],
    ),
    (['--program=r2d2', '--samples_per_insert_error=3'], ['--samples_per_insert_error=3', '8.0']),
    (['--program=r2d2', '--samples_per_insert=0'], ['--samples_per_insert is 0', 'above 0']),
    (
      ['--program=r2d2', '--env=dm_control:cheetah/run'],
      ['--env=dm_control:cheetah/run', 'continuous actions', '--program=sebulba'],
    ),
    (
      ['--program=qt_opt', '--env=catch'],
      ['--env=catch has one discrete action at a time', 'takes continuous', '--program=sebulba'],
    ),
    (
      ['--program=r2d2', '--num_steps=20000', '--min_replay_size=5000'],
      ['--num_steps=20000', '--min_replay_size=5000', 'nothing would be learned'],
    ),
    (
      ['--program=r2d2', '--target_update_period=2500'],
      ['--target_update_period=2500', 'the target network would never be updated'],
    ),
    (['--reanalyse_nodes=1'], ['--reanalyse_nodes', 'not an option']),
    (
      ['--program=muzero', '--reanalyse_nodes=1'],
      ['--reanalyse_nodes=1 and --reanalyse_share=0.0', 'set both above 0'],
    ),
    (
      ['--program=muzero', '--reanalyse_share=0.5'],
      ['--reanalyse_nodes=0 and --reanalyse_share=0.5', 'or leave both out'],
    ),
    *(
      (
        ['--program=muzero', '--reanalyse_nodes=1', f'--reanalyse_share={share}'],
        [f'--reanalyse_share is {share}', 'a number from 0 to below 1'],
      )
      for share in (1.0, -0.1)
    ),
    (
      ['--program=muzero', '--reanalyse_nodes=1', '--reanalyse_share=0.01', '--batch_size=16'],
      ['--reanalyse_share=0.01', '--batch_size=16', '0 unrolls', '--num_replay_shards=1'],
    ),
    (
      [
        *('--program=muzero', '--reanalyse_nodes=1', '--reanalyse_share=0.5'),
        *('--reanalyse_fraction=0.5', '--bootstrap=target'),
      ],
      ['--reanalyse_nodes=1 and --reanalyse_fraction=0.5', 'search twice'],
    ),
    (
      ['--program=muzero', '--reanalyse_nodes=1', '--reanalyse_share=0.5', '--reanalyse_size=31'],
      ['--reanalyse_size=31', 'the 32 relabelled unrolls'],
    ),
    (
      [
        *('--program=muzero', '--reanalyse_nodes=1', '--reanalyse_share=0.9'),
        '--samples_per_insert_error=5',
      ],
      ['--samples_per_insert_error=5.0', '--reanalyse_share=0.9', 'deadlock'],
    ),
    (['--num_steps=500'], ['--num_steps=500', '--batch_size=16', 'nothing would be learned']),
    (['--program=r2d2', '--queue_size=50'], ['--queue_size', 'not an option']),
    (['--num_replay_shards=3'], ['--batch_size=16', '--num_replay_shards=3']),
    (['--learning_rate=-1'], ['--learning_rate', '-1']),
    (['--num_steps=0'], ['--num_steps is 0']),
    (['--profile=learner/0:5'], ['--profile=learner/0:5', 'no node', 'inference_learner']),
    (['--profile=actor/0:5'], ['--profile=actor/0:5', 'does not use JAX', 'py-spy']),
    (
      ['--profile=inference_learner'],
      ['--profile=inference_learner', 'like inference_learner/0:5'],
    ),
    (['--profile=inference_learner:nan'], ['--profile', 'seconds above 0']),
    (
      ['--profile=inference_learner:2', '--lp_launch_type=local_mt'],
      ['--profile', 'a process for each node', 'local_mp'],
    ),
    (['--video_period=-1'], ['--video_period', '0 or more']),
    (['--video_period=60', '--eval_envs=0'], ['--video_period=60', '--eval_envs=0', 'leave one']),
    (['--program=anakin', '--video_period=60'], ['--video_period=60', 'Anakin', 'evaluate.py']),
    (['--num_replicas=0'], ['--num_replicas is 0', '1 or more']),
    (['--num_replicas=2', '--lp_launch_type=local_mt'], ['--num_replicas', 'local_mp']),
    (['--num_replicas=2', '--accelerator=tpu'], ['--num_replicas', 'a TPU host', '--launcher']),
    (['--program=evolution', '--accelerator=gpu'], ['--accelerator=gpu has no effect']),
    (['--program=gala', '--accelerator=tpu'], ['same TPU chips', 'a single node']),
    (['--run_dir=/proc/nothing'], ['--run_dir', 'cannot be written']),
    (['--placement=/nothing.yaml'], ['--placement=/nothing.yaml', 'cannot be read']),
    (['--launcher=ray', '--lp_launch_type=local_mt'], ['--lp_launch_type', '--launcher=local']),
    (['--launcher=ray', '--accelerator=tpu', '--learner_devices=1,2'], ['3 TPU', '--placement']),
    (['--launcher=ray', '--isolate=require'], ['--isolate is for --launcher=local']),
    (['--launcher=k8s', '--output=x'], ['--image']),
    (['--launcher=k8s', '--image=x', '--output=y', '--web'], ['--web', 'watch.py']),
    (['--web_port=80'], ['--web_port', '--web; add it']),
    (['--launcher=k8s', '--image=x'], ['--output']),
    (['--launcher=k8s', '--image=x', '--run_dir=y'], ['--run_dir', '--k8s_volume']),
    (
      ['--launcher=k8s', '--image=x', '--output=/proc/x'],
      ['--output=/proc/x', 'cannot be written'],
    ),
    (
      ['--launcher=k8s', '--image=x', '--output=y', '--accelerator=tpu'],
      ['topology', '--placement'],
    ),
    (['--launcher=k8s', '--image=x', '--output=y', '--k8s_name=A'], ['--k8s_name=A', 'lower-case']),
    (['--launcher=k8s', '--image=x', '--dry_run', '--accelerator=tpu'], ['topology']),
    (['--program=anakin', '--env=atari:Pong'], ['--env=atari:Pong', 'catch', 'gymnax:CartPole-v1']),
    _slow(
      ['--program=anakin', '--env=gymnax:CartPol-v1'], ['CartPol-v1', 'did you mean CartPole-v1']
    ),
    _slow(['--program=anakin', '--env_options=speed=3'], ['--env_options', 'speed']),
    (['--program=anakin', '--num_actors=2'], ['--num_actors', 'not an option']),
    (
      ['--program=impala', '--inference_batch_size=32'],
      ['--inference_batch_size', 'not an option'],
    ),
    (['--inference_nodes=-1'], ['--inference_nodes is -1', '0 or more']),
    (['--env_groups=-1'], ['--env_groups is -1', '0 or more']),
    (['--inference_nodes=3', '--num_actors=4'], ['--num_actors=4', '--inference_nodes=3']),
    (['--inference_nodes=2', '--num_replicas=2'], ['--inference_nodes=2', '--num_replicas=2']),
    (
      ['--inference_nodes=2', '--env_groups=1', '--actor_devices=0,1'],
      ['--actor_devices', '1 groups'],
    ),
    (['--program=impala', '--num_replicas=2'], ['--num_replicas', 'not an option']),
    (['--program=impala', '--queue_size=8'], ['--queue_size=8', 'at least 16']),
    (['--program=impala', '--update_period=0'], ['--update_period is 0', 'above 0']),
    (['--program=anakin', '--num_envs=9', '--num_devices=2'], ['--num_envs=9', '--num_devices=2']),
    (
      ['--program=anakin', '--num_envs=12', '--num_devices=4', '--num_replicas=2'],
      ['--num_envs=12', '--num_replicas=2 hosts of --num_devices=4', 'a multiple of 8'],
    ),
    (['--program=intrinsic_rewards', '--num_replicas=3'], ['--num_envs=128', '--num_replicas=3']),
    (
      ['--program=anakin', '--agent=r2d2', '--num_envs=96', '--num_replicas=3'],
      ['--num_replay_shards=8', 'over 3 devices'],
    ),
    (
      ['--program=anakin', '--num_replicas=2', '--lp_launch_type=local_mt'],
      ['anakin', '--num_replicas', 'local_mp'],
    ),
    (['--program=anakin', '--updates_per_call=0'], ['--updates_per_call is 0', '1 or more']),
    (
      ['--program=anakin', '--num_envs=16384', '--updates_per_call=6554'],
      ['--updates_per_call=6554', '--num_envs=16384', 'unrolls of 20 rows', 'smaller'],
    ),
    _slow(
      ['--program=anakin', '--agent=muzero', '--env=gymnax:Pendulum-v1'],
      ['--env=gymnax:Pendulum-v1 has continuous actions', '--agent=vtrace or ppo'],
    ),
    (
      ['--program=anakin', '--agent=muzero', '--num_envs=24'],
      ['--samples_per_insert=4.0 of --num_envs=24', '1.5 batches of --batch_size=64'],
    ),
    (
      ['--program=anakin', '--agent=r2d2', '--num_envs=96', '--num_devices=3'],
      ['--num_replay_shards=8', '3 devices'],
    ),
    (
      ['--program=anakin', '--agent=muzero', '--updates_per_batch=24'],
      ['--batch_size=64', '--updates_per_batch', 'a multiple of 24'],
    ),
    (
      ['--program=anakin', '--agent=r2d2', '--updates_per_call=20'],
      ['--updates_per_call=20', 'not a multiple of the 8 learner steps'],
    ),
    (
      ['--program=anakin', '--agent=r2d2', '--replay_size=511'],
      ['--replay_size=511', '--min_replay_size=500', '--num_envs=32'],
    ),
    (['--program=intrinsic_rewards', '--env=catch'], ['--env=catch', 'lifetime:<task>']),
    (
      ['--program=intrinsic_rewards', '--inner_reward=intrinsic'],
      ['--inner_reward', 'learned, extrinsic or count'],
    ),
    _slow(
      ['--program=anakin', '--env=pgx:connect_four', '--env_options=opponent=perfect'],
      ['opponent=perfect', 'random'],
    ),
    *(
      ([f'--program={program}', '--num_peers=0'], ['--num_peers is 0', 'a number from 1 to 1024'])
      for program in ('gala', 'gala_sebulba')
    ),
    (['--program=population', '--num_steps=7'], ['--num_steps=7', '--num_members=8']),
    (['--program=population', '--selection=best'], ["--selection is 'best'", 'tournament']),
    (
      ['--program=population', '--selection=tournament', '--truncation=0.3'],
      ['--truncation=0.3', '--selection=truncation'],
    ),
    (['--program=population', '--tune=lr=1..2'], ['--tune=lr', 'entropy_cost', 'vtrace_lambda']),
    (['--program=population', '--num_pods=3'], ['--num_pods=3', '--num_members=8']),
    (
      ['--program=population_sebulba', '--num_replicas=2'],
      ['--num_replicas=2', '--num_members=8'],
    ),
    (
      ['--program=population_sebulba', '--inference_nodes=2'],
      ['--inference_nodes=2', '--num_members=8'],
    ),
    (
      ['--program=population', '--agent=muzero'],
      ['--agent=muzero is not trained by this program', 'ppo, r2d2'],
    ),
    (
      ['--program=population', '--agent=r2d2', '--tune=entropy_cost=1e-3..1e-2'],
      ['--tune=entropy_cost', 'learning_rate, discount'],
    ),
    (
      ['--program=population', '--normalize_rewards', '--tune=discount=0.9..0.99'],
      ['--tune=discount', '--normalize_rewards'],
    ),
    (['--program=gala', '--num_peers=8', '--num_steps=7'], ['--num_steps=7', '--num_peers=8']),
    (['--program=gala', '--gossip=sometimes'], ["--gossip is 'sometimes'", 'blocking']),
    (['--program=gala', '--mixing=median'], ["--mixing is 'median'", 'push_sum']),
    (['--program=gala', '--gossip_timeout=5'], ['--gossip_timeout=5', '--gossip=async']),
    (['--program=gala', '--gossip_graph=0-1,1-0'], ['--gossip_graph=0-1,1-0', 'except 2']),
    (['--program=gala', '--num_peers=1', '--gossip_graph=0-1'], ['0-1', '--num_peers']),
    (
      ['--program=gala', '--agent=ppo'],
      ['--agent=ppo is not trained by this program', 'vtrace, and path/to/mine.py'],
    ),
    (['--program=gala', '--num_replicas=2'], ['--num_replicas', 'not an option']),
    (['--program=gala_sebulba', '--num_replicas=2'], ['--num_replicas=2', '--num_peers=4']),
    (['--program=gala_sebulba', '--inference_nodes=2'], ['--inference_nodes=2', '--num_peers=4']),
    (['--seed=-1'], ['--seed', '-1', 'a number from 0 to 4294967295']),
    (['--eval_period=-1'], ['--eval_period', '-1']),
    (['--inference_timeout_ms=inf'], ['--inference_timeout_ms', 'inf', 'finite']),
    (['--checkpoint_period=nan'], ['--checkpoint_period', 'nan', 'finite']),
    (['--entropy_cost=nan'], ['--entropy_cost', 'nan', 'finite']),
    (['--node_timeout=nan'], ['--node_timeout=nan', 'finite']),
    (['--launcher=pod'], ['--launcher=k8s', 'JOB_COMPLETION_INDEX']),
    (['--dry_run', '--graph=graph.png'], ['--graph=graph.png', '.svg']),
    (['--resume='], ['--resume= names nothing']),
    (['--placement='], ['--placement= names nothing']),
    (['--config='], ['--config= names nothing']),
    (['--num_actors=100000'], ['--num_actors is 100000', '65536']),
    (['--dry_run', f'--run_dir={ROOT}'], [f'--run_dir={ROOT} is not empty']),
    (['--dry_run', f'--run_dir={__file__}'], ['test_flags.py cannot be read: Not a directory']),
    (['nonsense'], ["'nonsense'"]),
  ],
)
def test_bad_flags_are_rejected_in_one_sentence_before_anything_starts(flags, words, capsys):
  code = run_main(*flags)
  captured = capsys.readouterr()
  assert code == 2
  assert captured.out == ''
  assert captured.err.startswith('error: ') and captured.err.count('\n') == 1
  for word in words:
    assert word in captured.err


@pytest.mark.slow
@pytest.mark.parametrize(
  'flag, error',
  [
    ('--num_stepz=3', '--num_stepz is not a flag; did you mean --num_steps?'),
    ('--lr=1e-3', '--lr is not a flag; did you mean --learning_rate?'),
    (
      '--num_steps=1e6',
      '--num_steps=1e6 is not a whole number; write it in digits, such as 1000000.',
    ),
  ],
)
def test_a_flag_that_cannot_be_parsed_is_rejected_in_one_sentence(flag, error):
  process = launch(flag)
  assert process.returncode == 2
  assert process.stderr == f'error: {error}\n'


@pytest.mark.parametrize(
  ('name', 'meant'),
  [
    ('gamma', 'discount'),
    ('total-timesteps', 'num_steps'),
    ('n_envs', 'num_envs'),
    ('max_grad_norm', 'max_gradient_norm'),
    ('learningrate', 'learning_rate'),
    ('xyzzy', ''),
  ],
)
def test_a_name_of_another_library_leads_to_the_flag(name, meant):
  run_main('--list_envs')  # It defines the flags.
  tail = f'; did you mean --{meant}?' if meant else '; --helpfull lists all flags.'
  with pytest.raises(ValueError, match=re.escape(f'--{name} is not a flag{tail}')):
    config_flags.parse(['launch.py', f'--{name}=1'])


def test_a_run_directory_in_use_is_rejected(tmp_path, capsys):
  (tmp_path / 'summary.json').write_text('{}')
  assert run_main(f'--run_dir={tmp_path}') == 2
  assert 'is not empty' in capsys.readouterr().err


@pytest.mark.parametrize(
  'module, function, where',
  [
    (os, 'fsync', 'config.json cannot be written: No space left on device.'),
    (child_process.subprocess, 'Popen', 'the nodes cannot be started: No space left on device.'),
  ],
)
def test_a_run_that_cannot_start_leaves_a_directory_for_the_same_command(
  tmp_path, monkeypatch, capsys, module, function, where
):
  def fail(*args, **kwargs):
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(module, function, fail)
  run_dir = tmp_path / 'run'
  assert run_main('--num_steps=2000', f'--run_dir={run_dir}') == 2
  assert where in capsys.readouterr().err
  assert [path.name for path in run_dir.iterdir()] == []
