"""A script: V-trace updates on meshes of fake CPU devices; prints the largest difference of each.

Run it with XLA_FLAGS=--xla_force_host_platform_device_count=8.
"""

from __future__ import annotations

import dm_env.specs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.types import FIRST, LAST, MID, Timestep, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig

BATCH_SIZE = 168  # The least that 4, 6, 7 and 8 devices divide.
# A large epsilon: Adam would blow rounding errors of tiny gradients up to whole steps.
CONFIG = VTraceConfig(
  unroll_length=4,
  mlp_sizes=(16,),
  core='lstm',
  lstm_size=8,
  frame_stack=2,
  adam_eps=1e-3,
  learning_rate=1e-2,
  max_gradient_norm=0.05,
)


def make_unrolls(agent, num_rows):
  """Returns random unrolls; environments have the more LAST rows the higher their index."""
  rng = np.random.default_rng(0)
  shape = (BATCH_SIZE, num_rows)
  ends = rng.uniform(size=shape) < np.linspace(0, 0.9, BATCH_SIZE)[:, None]
  step_type = np.where(ends, LAST, MID)
  step_type[:, 1:] = np.where(step_type[:, :-1] == LAST, FIRST, step_type[:, 1:])
  timestep = Timestep(
    step_type,
    (step_type != FIRST) * rng.normal(size=shape).astype(np.float32),
    np.float32(step_type != LAST),
    rng.normal(size=(*shape, 6)).astype(np.float32),
  )
  logits = rng.normal(size=(*shape, 3)).astype(np.float32)
  core_state = jax.tree.map(
    lambda x: rng.integers(0, 2, x.shape).astype(x.dtype), agent.initial_core_state(BATCH_SIZE)
  )
  return Unroll(
    timestep,
    rng.integers(0, 3, shape).astype(np.int32),
    {'behaviour_logits': logits},
    rng.integers(-50, 1, shape).astype(np.int32),
    core_state,
    np.arange(BATCH_SIZE, dtype=np.int32),
  )


def updated(agent, state, unrolls, devices):
  """Returns params and metrics after two updates with the batch sharded over `devices`."""
  mesh = Mesh(np.asarray(devices), ('batch',))
  replicated = NamedSharding(mesh, PartitionSpec())
  update = jax.jit(agent.update, donate_argnums=0)
  state = jax.device_put(state, replicated)
  unrolls = jax.device_put(unrolls, NamedSharding(mesh, PartitionSpec('batch')))
  for _ in range(2):
    state, _, metrics = update(state, unrolls, None)
  assert len(state.params['params']['head']['value']['bias'].sharding.device_set) == len(devices)
  return jax.device_get((state.params, metrics))


def main():
  """Prints `devices largest_difference_in_params largest_difference_in_metrics` for each mesh."""
  agent = VTrace(
    CONFIG,
    dm_env.specs.Array((6,), np.float32),
    dm_env.specs.DiscreteArray(3, dtype=np.int32),
  )
  unrolls = make_unrolls(agent, agent.unroll_rows)
  state = jax.device_get(jax.jit(agent.init)(jax.random.key(0)))
  reference = updated(agent, state, unrolls, jax.devices()[:1])

  def largest(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.max(np.abs(x - y))), a, b)))

  print(0, largest(state.params, reference[0]), 0.0)
  for num_devices in (4, 6, 7, 8):
    params, metrics = updated(agent, state, unrolls, jax.devices()[:num_devices])
    print(num_devices, largest(params, reference[0]), largest(metrics, reference[1]))


if __name__ == '__main__':
  main()
