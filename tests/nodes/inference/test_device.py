"""Actor:learner splits of 8 (fake) devices."""

import pytest

from tests.agents.subprocesses import run_python

pytestmark = pytest.mark.slow


def test_splits_of_eight_devices_learn_what_one_device_learns():
  output = run_python(
    '-m',
    'tests.nodes.device_splits',
    XLA_FLAGS='--xla_force_host_platform_device_count=8',
    JAX_PLATFORMS='cpu',
  )
  differences = dict(map(str.split, output.splitlines()))
  assert set(differences) == {'1', '4'}
  assert all(float(d) < 1e-5 for d in differences.values()), differences
