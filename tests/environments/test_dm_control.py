"""The Control Suite's tasks behind the batched interface."""

import numpy as np
import pytest

from environments import registry, seeding
from environments.dm_control import load_suite
from tests.agents.subprocesses import run_python

FIRST, MID, LAST = 0, 1, 2


def test_rows_equal_those_of_single_environments():
  """Two action repeats; observations in the order of their names; the time limit truncates."""
  name, seed, repeat = 'dm_control:ball_in_cup/catch', 3, 2
  batch = registry.make(name, 2, seed, f'action_repeat={repeat},time_limit=0.2')
  assert batch.action_repeat == repeat
  singles = [
    load_suite().load('ball_in_cup', 'catch', task_kwargs={'random': s, 'time_limit': 0.2})
    for s in seeding.spawn(seed, 2)
  ]

  def expected(timestep):
    return np.concatenate([timestep.observation[k] for k in sorted(timestep.observation)])

  row = batch.reset()
  for i, single in enumerate(singles):
    np.testing.assert_allclose(row.observation[i], expected(single.reset()), rtol=1e-6)
  rng = np.random.default_rng(0)
  for t in range(1, 6):
    action = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
    row = batch.step(action)
    for i, single in enumerate(singles):
      timesteps = [single.step(action[i]) for _ in range(repeat)]
      np.testing.assert_allclose(row.observation[i], expected(timesteps[-1]), rtol=1e-6)
      np.testing.assert_allclose(row.reward[i], sum(t.reward for t in timesteps))
      assert timesteps[-1].last() == (t == 5)
    np.testing.assert_array_equal(row.step_type, LAST if t == 5 else MID)
    np.testing.assert_array_equal(row.discount, 1)
  np.testing.assert_array_equal(batch.step(action).step_type, FIRST)


@pytest.mark.parametrize('task', ['cartpole/swingup', 'walker/walk'])
def test_a_tasks_own_time_limit_truncates(task):
  """Both have 1,000 steps and no other end."""
  batch = registry.make(f'dm_control:{task}', 1, 0)
  spec = batch.action_spec()
  batch.reset()
  for t in range(1, 1001):
    row = batch.step(np.zeros((1, *spec.shape), np.float32))
    assert (row.step_type[0], row.discount[0]) == (LAST if t == 1000 else MID, 1)


def test_the_task_that_needs_a_renderer_is_rejected_without_one(monkeypatch):
  monkeypatch.setenv('MUJOCO_GL', 'disabled')
  with pytest.raises(ValueError, match=r'--env=dm_control:quadruped/escape: .* MUJOCO_GL=egl'):
    registry.trial('dm_control:quadruped/escape')


def test_no_renderer_is_loaded_unless_one_is_named():
  out = run_python(
    '-c',
    'import os, sys\n'
    'os.environ.pop("MUJOCO_GL", None)\n'
    'from environments import registry\n'
    'registry.trial("dm_control:cartpole/swingup")\n'
    'print(*sorted({"OpenGL", "glfw", "dm_control._render.glfw_renderer"} & set(sys.modules)))',
  )
  assert out.strip() == ''
