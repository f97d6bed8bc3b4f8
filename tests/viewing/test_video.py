import json
import os

import dm_env
import numpy as np
import pytest
from PIL import Image

from agents.seeding import Seed
from environments import frames, jax_registry, registry
from environments.video import VideoRecorder
from rundir import run_end, videos
from viewing.jax_batch import JaxBatch

FIRST, MID, LAST = (int(step_type) for step_type in dm_env.StepType)


def test_an_environment_that_draws_itself_is_recorded_so(tmp_path):
  video = VideoRecorder(registry.make('cartpole', 2, 0, 'max_episode_steps=4'), 2, 100)
  video.reset()
  for _ in range(9):
    video.step(np.array([1, 0], np.int32))
  video.close()
  assert [(row.episode, row.step) for row in video.rows] == [
    (e, s) for e in (1, 2) for s in range(5)
  ]
  assert [row.episode_return for row in video.rows] == [0, 1, 2, 3, 4] * 2
  assert [row.action is None for row in video.rows] == [False] * 4 + [True] + [False] * 4 + [True]
  assert not video.cut
  assert video.rows[0].picture.size == (320, 213)
  video.save(str(tmp_path / 'x.gif'))
  with Image.open(tmp_path / 'x.gif') as video:
    assert video.n_frames == 10


def test_a_video_of_lives_is_one_of_games():
  """FIRE alone loses Breakout's five balls within 130 steps."""
  options = 'sticky_actions=0,life_loss_terminates=true'
  video = VideoRecorder(registry.make('atari:Breakout', 1, 0, options), 1, 1000)
  video.reset()
  for _ in range(140):
    video.step(np.ones(1, np.int32))
  video.close()
  assert [(row.episode, row.step) for row in video.rows] == [(1, t) for t in range(len(video.rows))]
  assert [row.last for row in video.rows] == [False] * (len(video.rows) - 1) + [True]
  assert sum(row.action is None for row in video.rows) == 5
  assert not video.cut


@pytest.mark.parametrize('name', ['gymnasium:Acrobot-v1', 'gymnasium:FrozenLake-v1'])
def test_gymnasium_draws_without_a_display(name):
  environment = registry.make(name, 2, 0)
  environment.reset()
  picture = environment.render()
  environment.close()
  assert picture.ndim == 3 and picture.shape[2] == 3 and picture.dtype == np.uint8
  assert len(np.unique(picture)) > 1


def test_of_a_nest_the_largest_picture_is_drawn_or_all_its_numbers():
  small, large = np.zeros((2, 3, 4), np.uint8), np.ones((2, 5, 4, 3), np.uint8)
  numbers, mask = np.full((2, 3), 7, np.int32), np.ones((2, 3), bool)
  nest = {'a': small, 'b': (large, numbers), 'action_mask': mask}
  assert frames.drawn_part(nest) is large
  assert frames.drawn_part(numbers) is numbers
  drawn = frames.drawn_part({'x': numbers, 'y': np.zeros(2), 'action_mask': mask})
  np.testing.assert_array_equal(drawn, [[7, 7, 7, 0]] * 2)


def test_observations_are_drawn_as_shades_colours_or_bars():
  board = np.zeros((3, 2), np.float32)
  board[1, 1] = 1
  drawn = np.asarray(frames.draw(board, 0, 1))
  assert drawn.shape == (318, 212, 3)
  assert drawn[159, 159].tolist() == [255] * 3 and drawn[10, 10].tolist() == [0] * 3

  channels = np.zeros((3, 2, 4), bool)
  channels[0, 0, 1] = channels[2, 1, 3] = channels[2, 1, 0] = True  # The later one covers.
  drawn = np.asarray(frames.draw(channels, 0, 1))
  assert {tuple(c) for c in drawn.reshape(-1, 3)} == {(0, 0, 0), (230, 159, 0), (240, 228, 66)}

  drawn = np.asarray(frames.draw(np.array([1.0, -1.0, 0.0]), -1, 1))
  blue = (drawn == (86, 180, 233)).all(axis=2)
  assert blue[:70, :80].any() and not blue[85:, :80].any()
  assert blue[90:, 110:180].any() and not blue[:75, 110:180].any()


def test_numbers_that_are_not_finite_are_drawn_too():
  drawn = np.asarray(frames.draw(np.array([np.inf, np.nan, -np.inf, 0.5]), -1, 1))
  blue = (drawn == (86, 180, 233)).all(axis=2)
  assert blue[:20].any(axis=0).nonzero()[0].max() < 80  # Only the first reaches the top.
  assert blue[-20:].any(axis=0).nonzero()[0].min() >= 160  # Only the third reaches the bottom.


def test_environments_in_jax_are_a_batch_like_any_other():
  environment = JaxBatch(jax_registry.make('catch'), 3, Seed(1))
  timestep = environment.reset()
  assert timestep.step_type.tolist() == [FIRST] * 3
  for t in range(1, 21):
    timestep = environment.step(np.ones(3, np.int32))
    kind = {9: LAST, 10: FIRST, 19: LAST, 20: FIRST}.get(t, MID)
    assert timestep.step_type.tolist() == [kind] * 3
    assert (np.abs(timestep.reward) == (kind == LAST)).all()
    assert (timestep.discount == (kind != LAST)).all()
    assert timestep.observation.shape == (3, 10, 5)
  spec = environment.spec()
  assert timestep.observation.dtype == spec.observations.dtype
  assert timestep.step_type.dtype == np.uint8 and timestep.reward.dtype == np.float32
  columns = environment.reset().observation[:, 0].argmax(axis=1)
  assert (
    JaxBatch(jax_registry.make('catch'), 3, Seed(1))
    .reset()
    .observation[:, 0]
    .argmax(axis=1)
    .tolist()
    == columns.tolist()
  )


def test_a_program_records_its_policy_and_in_the_end_its_final_one(finished_run):
  paths = videos.paths(str(finished_run))
  assert paths
  for path in paths:
    with Image.open(path) as video:  # An episode of Catch; before the last one, time is limited.
      assert video.n_frames == 10 or (path != paths[-1] and 1 <= video.n_frames < 10)
  steps = json.loads((finished_run / 'summary.json').read_text())['actor_steps']
  assert os.path.basename(paths[-1]) == f'{steps:012d}.gif'
  assert list((finished_run / 'tensorboard' / 'videos').iterdir())
  assert run_end.end_of(str(finished_run))['exit_code'] == 0
