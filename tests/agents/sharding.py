"""Runs sharded_update.py in a fresh interpreter with fake devices."""

from __future__ import annotations

import pathlib

from tests.agents.subprocesses import run_python

# Where XLA is free to begin two sums at once, fake devices on fewer cores begin them in different orders
# and wait for each other.
_IN_ORDER = '--xla_cpu_enable_concurrency_optimized_scheduler=false'
_EIGHT_DEVICES = {
  'XLA_FLAGS': f'--xla_force_host_platform_device_count=8 {_IN_ORDER}',
  'JAX_PLATFORMS': 'cpu',
}


def check_meshes_do_the_update_of_one_device(agent_name, sizes):
  """Asserts that meshes of these sizes, 4, 6, 7 or 8, agree with one device: params to 1e-5.

  Asserts too that nothing but sums moves between devices.
  """
  script = pathlib.Path(__file__).with_name('sharded_update.py')
  lines = run_python(str(script), agent_name, *map(str, sizes), **_EIGHT_DEVICES).splitlines()
  rows = {int(n): (float(p), float(m), kinds) for n, p, m, kinds in map(str.split, lines)}
  assert list(rows) == [0, *sizes]
  assert rows.pop(0)[0] > 1e-3  # The update moves the parameters.
  for params, metrics, kinds in rows.values():
    assert params < 1e-5 and metrics < 1e-4, rows
    assert kinds == 'all-reduce', rows
