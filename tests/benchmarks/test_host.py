"""The benchmark of an accelerator's host, at its smallest."""

import jax
import numpy as np
import pytest

from benchmarks import host
from benchmarks.simulated.program import PROGRAM
from programs import registry
from programs.options.configs import make_config
from tests.benchmarks import smoke


def test_the_simulated_computation_takes_its_time_and_shows_that_rows_arrive_intact():
  program = registry.load(PROGRAM)
  config = make_config(program, {'inference_ms': 1.0, 'update_ms': 2.0, 'unroll_length': 3})
  spec = program.environments.make_spec(config.run.env, '')
  agent = program.make_agent(config)(spec.observations, spec.actions)
  assert (agent.unroll_rows, agent.unroll_period) == (4, 3)
  environment = program.environments.make(config.run.env, 5, 0, '')
  timestep = environment.reset()
  output = jax.jit(agent.act)({}, {}, timestep, np.zeros(5, np.float32), None)
  np.testing.assert_array_equal(output.action, timestep.observation[:, 0, 0] % 6)
  assert output.extras['behaviour_logits'].shape == (5, 6)


def test_copies_are_measured_from_memory_to_memory(monkeypatch):
  monkeypatch.setattr(host, '_COPIED_BYTES', 1 << 20)
  assert 1e7 < host.copied_bytes_per_second() < 1e13


@pytest.mark.nightly
def test_the_host_is_measured(tmp_path):
  flags = ('--stage_seconds=0.02', '--repeats=1', '--seconds=1', '--warm_up=0')
  lines, record = smoke.run('host', tmp_path, 'host-simulated', *flags, '--envs_per_actor=8')
  assert record['row_bytes'] == 7056 and record['times_of_a_copy'] > 1
  assert any(line.startswith('a step uses ') for line in lines)
