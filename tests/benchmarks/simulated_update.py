"""Prints what moves the simulated gradient between fake devices, and its error; see test_replicas.py.

XLA_FLAGS=--xla_force_host_platform_device_count=4.
"""

import re

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import Timestep, Unroll
from benchmarks.simulated.program import PROGRAM
from programs import registry
from programs.options import configs

_PARAMS, _ROWS = 64, 16


def main():
  program = registry.load(PROGRAM)
  config = configs.make_config(program, {'update_ms': 1.0, 'num_params': _PARAMS})
  spec = program.environments.make_spec(config.run.env, '')
  agent = program.make_agent(config)(spec.observations, spec.actions)
  mesh = Mesh(np.asarray(jax.devices()), ('data',))
  sharded, replicated = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (('data',), ()))
  rewards = np.arange(_ROWS * 4, dtype=np.float32).reshape(_ROWS, 4)
  versions = np.zeros_like(rewards, np.int32)
  unrolls = Unroll(Timestep(None, rewards, None, None), None, {}, versions, None, None)
  shardings = {'in_shardings': (replicated, sharded), 'out_shardings': replicated}
  update, state = jax.jit(agent.update, **shardings), agent.init(None)
  compiled = update.lower(state, jax.device_put(unrolls, sharded)).compile()
  # Of whole gradients; counters and metrics are single numbers.
  moves = re.findall(r'= (.*) (all-\w+)\(', compiled.as_text())
  kinds = {kind for shapes, kind in moves if f'f32[{_PARAMS}]' in shapes}
  params = update(state, jax.device_put(unrolls, sharded)).state.params['unused']
  expected = np.zeros(_PARAMS)
  np.add.at(expected, rewards[:, 0].astype(int) % _PARAMS, rewards[:, 0])
  print(','.join(sorted(kinds)), np.abs(np.asarray(params) - expected).max())


if __name__ == '__main__':
  main()
