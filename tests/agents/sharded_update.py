"""A script: updates on meshes of fake CPU devices; prints the largest difference of each.

Run it with a name of `AGENTS` and the sizes of the meshes as arguments, and with
XLA_FLAGS=--xla_force_host_platform_device_count=8.
"""

from __future__ import annotations

import sys

import dm_env.specs
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.pqn.agent import PQN
from agents.pqn.config import PQNConfig
from agents.qt_opt.agent import QTOpt
from agents.qt_opt.config import QTOptConfig
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.sac.agent import SAC
from agents.sac.config import SACConfig
from agents.types import FIRST, LAST, MID, Timestep, Unroll
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.collectives import kinds_of_collectives, largest_sum

SHARED = ('frame_stack', 'adam_eps', 'learning_rate', 'max_gradient_norm')
BATCH_SIZE = 336  # 4, 6, 7 and 8 devices hold an even number of unrolls in each third of it.
# A large epsilon: Adam would blow rounding errors of tiny gradients up to whole steps.
OPTIONS = {
  'unroll_length': 4,
  'mlp_sizes': (16,),
  'core': 'lstm',
  'core_size': 8,
  'frame_stack': 2,
  'adam_eps': 1e-3,
  'learning_rate': 1e-2,
  'max_gradient_norm': 0.05,
}
NORMALIZED = {'normalize_observations': True, 'normalize_rewards': True}


def logits(rng, shape):
  return rng.normal(size=(*shape, 3))


# The class, its config, and what makes each of its extras.
AGENTS = {
  'muzero': (
    MuZero,
    MuZeroConfig(
      unroll_length=3,
      num_unroll_steps=2,
      n_step=2,
      num_simulations=2,
      mlp_sizes=(16,),
      hidden_state_size=8,
      head_size=8,
      num_bins=21,
      max_bin=5.0,
      updates_per_batch=3,
      reanalyse_fraction=0.5,
      target_update_period=1,
      **{name: OPTIONS[name] for name in SHARED},
    ),
    {
      'search_policy': lambda rng, shape: rng.dirichlet(np.ones(3), shape),
      'root_value': lambda rng, shape: rng.normal(size=shape),
    },
  ),
  'vtrace': (VTrace, VTraceConfig(**OPTIONS), {'behaviour_logits': logits}),
  'ppo': (PPO, PPOConfig(**OPTIONS, num_epochs=2, num_minibatches=3), {'behaviour_logits': logits}),
  'ppo_of_transitions': (
    PPO,
    PPOConfig(
      **OPTIONS | {'core': 'none', 'minibatch_of': 'transitions'},
      num_epochs=2,
      num_minibatches=12,
    ),
    {'behaviour_logits': logits},
  ),
  'pqn': (PQN, PQNConfig(**OPTIONS, optimizer='adam', num_epochs=2, num_minibatches=3), {}),
  'pqn_of_transitions': (
    PQN,
    PQNConfig(**OPTIONS | {'core': 'none'}, optimizer='adam', num_epochs=2, num_minibatches=12),
    {},
  ),
  'qt_opt': (
    QTOpt,
    QTOptConfig(
      **OPTIONS | {'core': 'none'},
      head_size=8,
      num_samples=8,
      num_elites=2,
      averaging=0.5,
      target_update_period=1,
    ),
    {},
  ),
  'sac': (SAC, SACConfig(**OPTIONS | {'core': 'none'}, head_sizes=(8,), tau=0.5), {}),
  'vtrace_normalized': (
    VTrace,
    VTraceConfig(**OPTIONS, **NORMALIZED),
    {'behaviour_logits': logits},
  ),
  'ppo_normalized': (
    PPO,
    PPOConfig(**OPTIONS, **NORMALIZED, num_epochs=2, num_minibatches=3),
    {'behaviour_logits': logits},
  ),
  'r2d2': (
    R2D2,
    R2D2Config(**OPTIONS, burn_in=3, n_step=2, head_size=8, target_update_period=1),
    {'q_values': logits},
  ),
}


def make_unrolls(agent, extras):
  """Returns random unrolls; environments have the more LAST rows the higher their index."""
  rng = np.random.default_rng(0)
  shape = (BATCH_SIZE, agent.unroll_rows)
  ends = rng.uniform(size=shape) < np.linspace(0, 0.9, BATCH_SIZE)[:, None]
  step_type = np.where(ends, LAST, MID)
  step_type[:, 1:] = np.where(step_type[:, :-1] == LAST, FIRST, step_type[:, 1:])
  timestep = Timestep(
    step_type,
    (step_type != FIRST) * rng.normal(size=shape).astype(np.float32),
    np.float32(step_type != LAST),
    rng.normal(size=(*shape, 6)).astype(np.float32),
  )
  core_state = jax.tree.map(
    lambda x: rng.integers(0, 2, x.shape).astype(x.dtype), agent.initial_core_state(BATCH_SIZE)
  )
  return Unroll(
    timestep,
    rng.integers(0, 3, shape).astype(np.int32),
    {name: make(rng, shape).astype(np.float32) for name, make in extras.items()},
    rng.integers(-50, 1, shape).astype(np.int32),
    core_state,
    np.arange(BATCH_SIZE, dtype=np.int32),
  )


def updated(agent, state, unrolls, devices):
  """Does two updates sharded over `devices`.

  Returns:
    Params, then priorities and metrics, after them; and the kinds of collectives in an update.
  """
  mesh = Mesh(np.asarray(devices), ('batch',))
  replicated = NamedSharding(mesh, PartitionSpec())
  update = jax.jit(agent.update, donate_argnums=0)
  state = jax.device_put(state, replicated)
  probabilities = np.random.default_rng(1).uniform(0.1, 1.0, BATCH_SIZE).astype(np.float32)
  batch = jax.device_put((unrolls, probabilities), NamedSharding(mesh, PartitionSpec('batch')))
  update = update.lower(state, *batch).compile()
  for _ in range(2):
    state, *results = update(state, *batch)
  for leaf in jax.tree.leaves(state.params):
    assert len(leaf.sharding.device_set) == len(devices)
  text, leaves = update.as_text(), jax.tree.leaves(state)
  if len(devices) > 1:
    # Sums are of gradients, not of unrolls.
    assert largest_sum(text) <= max(leaf.size for leaf in leaves), largest_sum(text)
  return *jax.device_get((state.params, results)), kinds_of_collectives(text)


def main():
  """Prints `devices difference_in_params difference_in_the_rest kinds_of_collectives` for each mesh."""
  constructor, config, extras = AGENTS[sys.argv[1]]
  actions = dm_env.specs.DiscreteArray(3, dtype=np.int32)
  if constructor in (QTOpt, SAC):
    actions = dm_env.specs.BoundedArray((), np.float32, 0.0, 2.0)
  agent = constructor(config, dm_env.specs.Array((6,), np.float32), actions)
  unrolls = make_unrolls(agent, extras)
  state = jax.device_get(jax.jit(agent.init)(jax.random.key(0)))
  reference = updated(agent, state, unrolls, jax.devices()[:1])

  def largest(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.max(np.abs(x - y))), a, b)))

  print(0, largest(state.params, reference[0]), 0.0, 'none')
  for num_devices in map(int, sys.argv[2:]):
    params, results, kinds = updated(agent, state, unrolls, jax.devices()[:num_devices])
    differences = largest(params, reference[0]), largest(results, reference[1])
    print(num_devices, *differences, ','.join(kinds))


if __name__ == '__main__':
  main()
