"""A node's process records a profile of itself if its environment asks for it."""

import subprocess
import sys

import pytest

from launchers import profiling
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE

NODE = """
import sys
from launchers import profiling
from nodes.runtime import activity

thread = profiling.begin(sys.argv[1], settling_seconds=0.0)
if thread is None:
  sys.exit(3)
activity.mark(activity.COMPILING)
if sys.argv[2] == 'jax':
  import jax
  step = jax.jit(lambda x: x @ x)
  x = jax.numpy.ones((64, 64))
  step(x).block_until_ready()
activity.mark(activity.UPDATING)
while thread.is_alive():
  if sys.argv[2] == 'jax':
    step(x).block_until_ready()
  thread.join(0.01)
"""


def run(payload, what, variables):
  return subprocess.run(
    [sys.executable, '-c', NODE, payload, what],
    cwd=ROOT,
    env={'JAX_PLATFORMS': 'cpu', 'PYTHONPATH': str(ROOT), **variables},
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )


@pytest.mark.slow
def test_a_node_that_uses_jax_records_its_profile(tmp_path):
  variables = profiling.variables('learner/0', 0.2, str(tmp_path))
  process = run('/nodes/learner-0.pkl', 'jax', variables)
  assert process.returncode == 0, process.stderr
  (trace,) = (tmp_path / 'learner-0').rglob('*.xplane.pb')
  assert trace.stat().st_size > 1000


def test_a_node_without_jax_continues_and_says_why_there_is_none(tmp_path):
  process = run('actor-3.pkl', 'none', profiling.variables('actor/3', 0.2, str(tmp_path)))
  assert process.returncode == 0 and 'does not use JAX' in process.stderr
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'payload, further',
  [('learner-1.pkl', {}), ('actor-0.pkl', {}), ('learner-0.pkl', {'LAUNCHPOD_RESTART_COUNT': '1'})],
)
def test_no_other_node_and_no_restarted_one_records(payload, further, monkeypatch):
  for name, value in (profiling.variables('learner/0', 5.0, '/none') | further).items():
    monkeypatch.setenv(name, value)
  assert profiling.begin(payload) is None
