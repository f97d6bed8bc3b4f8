"""A script: one of the processes over whose devices Anakin's loop is spread, or one with all devices.

Run it with host:port of the coordinator, the number of processes, which of them it is, the directory to
write, the directory of another run whose checkpoints to continue from, or '', and the agents.
"""

import pathlib
import sys

import jax
import numpy as np

from agents.anakin.environments.catch import Catch
from agents.anakin.host_copies import HostCopies
from agents.anakin.limits import RingSizes
from agents.anakin.loop import AnakinLoop
from agents.muzero.agent import MuZero
from agents.muzero.config import MuZeroConfig
from agents.ppo.agent import PPO
from agents.ppo.config import PPOConfig
from agents.r2d2.agent import R2D2
from agents.r2d2.config import R2D2Config
from agents.seeding import Seed
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from nodes.learning import replicas, serialisation
from rundir import checkpoints
from tests.agents.levels import Levels

# Without an LSTM, which takes long to compile. A large epsilon: Adam would blow rounding errors of tiny
# gradients up to whole steps.
SMALL = {'unroll_length': 3, 'mlp_sizes': (8,), 'adam_eps': 1e-3, 'learning_rate': 1e-2}
Q_VALUES = {'burn_in': 1, 'n_step': 2, 'core': 'none', 'head_size': 8, 'target_update_period': 2}
SEARCH = {'num_unroll_steps': 1, 'n_step': 2, 'num_simulations': 2, 'updates_per_batch': 3}
SEARCH |= {'hidden_state_size': 8, 'head_size': 8, 'num_bins': 11, 'max_bin': 5.0}
# Catch is over soon; a state of Levels is a dataclass with typed keys.
CASES = {
  'vtrace': (VTrace, VTraceConfig(**SMALL), Levels()),
  'r2d2': (R2D2, R2D2Config(**SMALL, **Q_VALUES), Catch(rows=5)),
  'ppo': (PPO, PPOConfig(**SMALL, num_epochs=2, num_minibatches=3), Catch(rows=5)),
  'muzero': (MuZero, MuZeroConfig(**SMALL, **SEARCH), Levels()),
}
NUM_ENVS = (
  24  # And so many unrolls of a batch, which PPO and MuZero divide by 3 on each of 8 devices.
)
RINGS = RingSizes(
  num_rings=8, slots=3, min_slots=2, batch_size=24, updates_per_unroll=1, priority_exponent=0.7
)
UPDATES = 3  # Of a call.


def make_loop(name, devices):
  """Returns the loop of an agent."""
  constructor, config, environment = CASES[name]
  agent = constructor(config, environment.observation_spec, environment.action_spec)
  rings = RINGS if name in ('r2d2', 'muzero') else None
  return AnakinLoop(agent, environment, NUM_ENVS, devices, UPDATES, rings)


def train(loop, state, calls):
  """Returns the state after some calls, and the last report."""
  for _ in range(calls):
    state, report = loop.train(state)
  return state, jax.device_get(report)


def write(directory, name, state, report):
  """Writes a checkpoint."""
  counts = {'learner_steps': int(report.learner_steps)}
  checkpoints.write(str(directory / name), counts, serialisation.serialise(state), keep=9)


def read(directory, name):
  """Returns the newest checkpoint."""
  return checkpoints.newest(str(directory / name))


def main():
  coordinator, num_replicas, replica, directory, origin, *agents = sys.argv[1:]
  directory = pathlib.Path(directory)
  if int(num_replicas) > 1:
    replicas.initialize(coordinator, int(replica), int(num_replicas))
  devices = jax.devices()
  assert len(devices) == 8 and len(jax.local_devices()) == 8 // int(num_replicas)
  replicas.warm_up_collectives(devices)
  assert replicas.any_of([False, replica == '1', replica == '0']) == [
    False,
    num_replicas == '2',
    True,
  ]
  for name in agents:
    loop = make_loop(name, devices)
    state = loop.init(Seed(1).key())
    loop.compile(state)
    state, report = train(loop, state, 3)
    half = loop.get(state)
    for got, piecewise in zip(
      jax.tree.leaves(half.replay),
      jax.tree.leaves(HostCopies(loop.mesh, piece_bytes=1000).get(state.replay)),
      strict=True,
    ):
      np.testing.assert_array_equal(got, piecewise)
    later = loop.get(train(loop, state, 2)[0])
    if origin:
      half = serialisation.restore(read(pathlib.Path(origin), f'{name}/half'), loop.shapes())
    continued = loop.get(train(loop, loop.put(half), 2)[0])
    if replica == '0':
      write(directory, f'{name}/half', half, report)
      write(directory, f'{name}/later', later, report)
      write(directory, f'{name}/continued', continued, report)


if __name__ == '__main__':
  main()
