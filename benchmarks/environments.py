"""Measures what a step of an environment costs on the CPU.

python -m benchmarks.environments                                        all below, a minute
python -m benchmarks.environments --env=minatar:Freeway,recall --num_envs=128

Prints, per environment: seconds to make a batch, and CPU time in microseconds of one step of one
environment, with random actions; the least of some repetitions. CPU time hardly depends on other work on
the machine.
"""

from __future__ import annotations

import time

import numpy as np
from absl import app, flags

from benchmarks import output
from environments import contract_check, registry
from environments.base import BatchedEnvironment

_ENVS = flags.DEFINE_list(
  'env',
  [
    *('catch', 'recall', 'cartpole', 'bsuite:memory_len/15'),
    *('minatar:Asterix', 'minatar:Breakout', 'minatar:Freeway'),
    *('minatar:Seaquest', 'minatar:SpaceInvaders', 'atari:Pong'),
    *('gymnasium:Acrobot-v1', 'gymnasium:Pendulum-v1', 'gymnasium:MountainCar-v0'),
    *('gymnasium:LunarLander-v3', 'gymnasium:BipedalWalker-v3'),
    *('gymnasium:HalfCheetah-v5', 'gymnasium:Hopper-v5', 'gymnasium:Walker2d-v5'),
    *('gymnasium:Ant-v5', 'gymnasium:Humanoid-v5'),
    *('dm_control:cartpole/swingup', 'dm_control:walker/walk'),
  ],
  'environments',
)
_NUM_ENVS = flags.DEFINE_integer('num_envs', 32, 'environments of a batch', lower_bound=1)
_SECONDS = flags.DEFINE_float('seconds', 0.3, 'CPU seconds of a repetition', lower_bound=0.01)
_REPEATS = 5


def cpu_seconds_per_step(environment: BatchedEnvironment, seconds: float) -> float:
  """Returns the CPU time of one step of one environment, the least of five repetitions."""
  rng, spec = np.random.default_rng(0), environment.action_spec()
  actions = [
    contract_check.random_actions(rng, spec, None, environment.num_envs) for _ in range(16)
  ]
  environment.reset()
  found = []
  for _ in range(_REPEATS):
    steps, started = 0, time.process_time()
    while time.process_time() - started < seconds:
      for action in actions:
        environment.step(action)
      steps += len(actions) * environment.num_envs
    found.append((time.process_time() - started) / steps)
  return min(found)


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table."""
  del argv
  print(f'{_NUM_ENVS.value} environments in one batch')
  table = output.Table(environment='<30', seconds_to_make='>16,.2f', CPU_us_a_step='>14,.1f')
  for name in _ENVS.value:
    started = time.process_time()
    environment = registry.make(name, _NUM_ENVS.value, 0)
    made = time.process_time() - started
    table.add(name, made, 1e6 * cpu_seconds_per_step(environment, _SECONDS.value))
    environment.close()


if __name__ == '__main__':
  app.run(main)
