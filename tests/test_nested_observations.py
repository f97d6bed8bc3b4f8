"""A user's environment of dictionaries with an action mask, from launch.py to evaluate.py."""

import numpy as np
import pytest
from PIL import Image

import evaluate
from rundir import recorded_unrolls, videos
from tests.programs_under_test import DONE, ROOT, log_text

ENVIRONMENT = f'{ROOT}/examples/doors.py:make'


def test_an_agent_learns_to_open_the_right_one_of_the_open_doors(train, tmp_path, capsys):
  """The environment fails at an illegal action. A random legal one is right in two of five rooms."""
  run_dir = tmp_path / 'run'
  process = train(
    *('--num_steps=14000', '--num_actors=1', '--envs_per_actor=16', '--batch_size=4'),
    *('--eval_episodes=20', '--mlp_sizes=32', '--hidden_size=32', '--learning_rate=0.005'),
    *(f'--env={ENVIRONMENT}', '--record_unrolls', '--lp_launch_type=local_mt'),
    '--video_period=1000',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  evaluator_return = float(DONE.fullmatch(process.stdout.splitlines()[-1])[1])
  assert evaluator_return > 4.0
  assert 'Traceback' not in log_text(run_dir)
  assert videos.paths(str(run_dir))

  first, *_ = recorded_unrolls.chunks(str(run_dir))
  names = recorded_unrolls.column_names(first)
  leaves = [name for name in names if name.startswith('timestep/observation/')]
  found = recorded_unrolls.read_chunk(first, [*leaves, 'action', 'timestep/step_type'])
  mask, sign, colour = (
    found[f'timestep/observation/{name}'] for name in ('action_mask', 'sign', 'colour')
  )
  assert (mask.dtype, sign.dtype, colour.dtype) == (bool, np.float32, np.int32)
  chosen = np.take_along_axis(mask, found['action'][..., None], -1)[..., 0]
  assert chosen.all() and not mask.all() and {*np.unique(sign)} == {-1, 1}

  video = tmp_path / 'video.gif'
  assert evaluate.main([str(run_dir), '--episodes=20', f'--video={video}']) == 0
  assert 'return       ' in capsys.readouterr().out
  with Image.open(video) as opened:
    assert opened.n_frames > 5


@pytest.mark.nightly  # tests/agents/test_anakin_nests.py trains from nests in every test run.
def test_anakin_learns_the_same_in_a_users_environment_in_jax(train, tmp_path, capsys):
  """A closed door costs 100, so the return of an agent that ever chose one is negative."""
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=anakin', f'--env={ROOT}/examples/doors_in_jax.py:make', '--num_envs=32'),
    *('--num_steps=60000', '--eval_episodes=20', '--mlp_sizes=32', '--hidden_size=32'),
    *('--learning_rate=0.005', f'--run_dir={run_dir}'),
  )
  assert process.returncode == 0, process.stderr
  assert float(DONE.fullmatch(process.stdout.splitlines()[-1])[1]) > 4.0
  assert 'Traceback' not in log_text(run_dir)
  assert evaluate.main([str(run_dir), '--episodes=20']) == 0
  assert 'return       ' in capsys.readouterr().out
