"""Anakin's loop over the devices of two processes, against one process with as many devices."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import serialization

from tests.nodes.anakin_replicas import read
from tests.ports import unused_port
from tests.programs_under_test import ENVIRONMENT
from tests.waiting import DEADLINE

pytestmark = pytest.mark.slow


def run(directory, num_replicas, origin, *agents):
  """Runs the processes of one job, with 8 fake devices together."""
  address, processes = f'localhost:{unused_port()}', []
  for replica in range(num_replicas):
    arguments = (address, num_replicas, replica, directory, origin, *agents)
    with open(directory / f'{num_replicas}-{replica}.log', 'wb') as log:
      flag = f'--xla_force_host_platform_device_count={8 // num_replicas}'
      processes.append(
        subprocess.Popen(
          [sys.executable, '-m', 'tests.nodes.anakin_replicas', *map(str, arguments)],
          env={**os.environ, **ENVIRONMENT, 'XLA_FLAGS': flag},
          stdout=log,
          stderr=subprocess.STDOUT,
        )
      )
  try:
    for process in processes:
      logs = lambda: '\n'.join(p.read_text() for p in sorted(directory.glob('*.log')))  # noqa: E731
      assert process.wait(timeout=DEADLINE) == 0, logs()
  finally:
    for process in processes:
      process.kill()


def state_of(directory, name):
  """Returns the state in the newest checkpoint, in nested dictionaries."""
  return serialization.msgpack_restore(read(directory, name).state)


def assert_same(actual, expected, atol):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), actual, expected)


@pytest.mark.parametrize(
  'agents',
  [
    ('vtrace', 'r2d2'),
    pytest.param(('ppo',), marks=pytest.mark.nightly),
    pytest.param(('muzero',), marks=pytest.mark.nightly),
  ],
)
def test_two_processes_do_what_one_does_and_each_continues_from_the_others_checkpoint(
  tmp_path, agents
):
  two, one = tmp_path / 'two', tmp_path / 'one'
  two.mkdir()
  one.mkdir()
  run(two, 2, '', *agents)
  run(one, 1, two, *agents)
  for name in agents:
    half, later, continued = (
      state_of(two, f'{name}/{when}') for when in ('half', 'later', 'continued')
    )
    before, after = half['learner']['params'], later['learner']['params']
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), after, before)
    assert max(jax.tree.leaves(moved)) > 1e-3
    assert_same(state_of(one, f'{name}/later'), later, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, continued, later)
    assert_same(state_of(one, f'{name}/continued'), later, atol=1e-5)
