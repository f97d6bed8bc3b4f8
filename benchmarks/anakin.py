"""Measures Anakin's steps/s against the number of environments, beside the environments alone.

python -m benchmarks.anakin                                three environments, a few minutes
python -m benchmarks.anakin --env=catch --num_envs=64,256 --seconds=1 --results=DIR

Prints a table; writes anakin.json and anakin.png. A step is one row of one environment: a decision or,
once an episode, a reset. Compilation is excluded. "alone" steps and resets the same environments with
random actions, and "of step" is that rate over the rate without any reset. "learning" acts with the
network and updates it with V-trace on unrolls of 20 rows.

`benchmarks/simulated/levels.py:make` has a reset that computes some 90 times what a step does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from matplotlib.figure import Figure

from agents.anakin.environment import JaxEnvironment, next_rows
from agents.anakin.loop import AnakinLoop
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from benchmarks import output
from environments import jax_registry, user_file

_ENVS = flags.DEFINE_list(
  'env',
  ['catch', 'gymnax:Breakout-MinAtar', 'benchmarks/simulated/levels.py:make'],
  'environments',
)
_NUM_ENVS = flags.DEFINE_list(
  'num_envs', ['16', '64', '256', '1024', '4096'], 'numbers of environments over all devices'
)
_SECONDS = flags.DEFINE_float('seconds', 1.0, 'seconds of each of three timings', lower_bound=0.1)

_UNROLL_LENGTH = 20
_REPEATS = 3


def rows_per_second(call: Callable[[Any], Any], state: Any, rows: int, seconds: float) -> float:
  """Returns the median rate of three timings.

  Args:
    call: compiled function from state to state.
    state: initial state.
    rows: rows that one call produces.
    seconds: length of each timing.
  """
  rates = []
  for _ in range(_REPEATS):
    jax.block_until_ready(state)
    calls, started = 0, time.perf_counter()
    while calls == 0 or time.perf_counter() - started < seconds:
      state = jax.block_until_ready(call(state))
      calls += 1
    rates.append(calls * rows / (time.perf_counter() - started))
  return float(np.median(rates))


def time_alone(
  environment: JaxEnvironment, num_envs: int, seconds: float, resets: bool = True
) -> float:
  """Returns the steps/s of environments under random actions, on all devices.

  Args:
    environment: one environment.
    num_envs: number of copies to play.
    seconds: length of each of three timings.
    resets: whether episodes begin; without them, steps go on after the end of the first episode.
  """
  num_rows = 10 * _UNROLL_LENGTH
  num_actions = environment.action_spec.num_values
  mesh = jax.sharding.Mesh(np.asarray(jax.local_devices()), ('data',))
  data = jax.sharding.PartitionSpec('data')

  def begin(key: jax.Array) -> Any:
    keys = jax.random.split(key, num_envs)
    return jax.random.key_data(keys), *jax.vmap(environment.reset)(keys)

  def row(carry: Any, _: None) -> tuple[Any, None]:
    keys, state, timestep = carry
    keys, now = jnp.moveaxis(jax.vmap(jax.random.split)(jax.random.wrap_key_data(keys)), 1, 0)
    action = jax.vmap(lambda key: jax.random.randint(key, (), 0, num_actions))(now)
    if resets:
      rows = next_rows(environment, state, timestep.step_type, action, now)
    else:
      rows = jax.vmap(environment.step)(state, action, now)
    return _strong((jax.random.key_data(keys), *rows)), None

  def play(carry: Any) -> Any:
    return jax.lax.scan(row, carry, length=num_rows)[0]

  on_devices = jax.jit(
    jax.shard_map(play, mesh=mesh, in_specs=data, out_specs=data, check_vma=False)
  )
  begun = jax.jit(begin, out_shardings=jax.sharding.NamedSharding(mesh, data))
  state = on_devices(_strong(begun(jax.random.key(0))))
  return rows_per_second(on_devices, state, num_rows * num_envs, seconds)


def _strong(nest: Any) -> Any:
  """Returns arrays without weak types, as the carry of a loop requires."""
  return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), nest)


def time_learning(environment: JaxEnvironment, num_envs: int, seconds: float) -> float:
  """Returns Anakin's steps/s on all devices, including updates."""
  config = VTraceConfig(unroll_length=_UNROLL_LENGTH)
  agent = VTrace(config, environment.observation_spec, environment.action_spec)
  loop = AnakinLoop(agent, environment, num_envs, jax.local_devices(), updates_per_call=5)
  state, _ = loop.train(loop.init(jax.random.key(0)))
  return rows_per_second(lambda s: loop.train(s)[0], state, loop.steps_per_call, seconds)


def draw(rows: list[dict[str, Any]]) -> Figure:
  """Draws steps/s against the number of environments."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  axes = figure.add_subplot()
  for i, env in enumerate(dict.fromkeys(r['env'] for r in rows)):
    of_env = [r for r in rows if r['env'] == env]
    sizes = [r['num_envs'] for r in of_env]
    for name, style in (('alone', '--'), ('learning', '-')):
      rates = [r[f'{name}_steps_per_second'] for r in of_env]
      label = f'{user_file.title(env)}, {name}'
      axes.loglog(sizes, rates, style, marker='.', color=f'C{i}', label=label)
  axes.set_xlabel('environments')
  axes.set_ylabel('environment steps/s')
  axes.grid(alpha=0.3)
  figure.legend(loc='outside right center')
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table and writes the results."""
  del argv
  devices = f'{len(jax.local_devices())} x {jax.local_devices()[0].device_kind}'
  print(f'{devices}, {output.cores()} CPU cores, JAX {jax.__version__}')
  table = output.Table(
    environment='<26',
    num_envs='>8',
    alone_steps_per_s='>17,.0f',
    of_step='>8.0%',
    learning_steps_per_s='>20,.0f',
  )
  rows: list[dict[str, Any]] = []
  for env in _ENVS.value:
    environment = jax_registry.make(env)
    for num_envs in map(int, _NUM_ENVS.value):
      alone = time_alone(environment, num_envs, _SECONDS.value)
      step = time_alone(environment, num_envs, _SECONDS.value, resets=False)
      learning = time_learning(environment, num_envs, _SECONDS.value)
      rows.append(
        {
          'env': env,
          'num_envs': num_envs,
          'alone_steps_per_second': alone,
          'alone_steps_per_second_without_resets': step,
          'learning_steps_per_second': learning,
        }
      )
      table.add(user_file.title(env), num_envs, alone, alone / step, learning)
  record = {'devices': devices, 'unroll_length': _UNROLL_LENGTH, 'results': rows}
  output.write('anakin', record, draw(rows))


if __name__ == '__main__':
  app.run(main)
