"""Finds where central inference saturates: a fleet of light actors against one inference node.

python -m benchmarks.fleet --env=atari:Pong
python -m benchmarks.fleet --env=catch --fleet=16,64,256,512 --inference_batch_size=256 --delay_ms=5

A light actor is one group of --envs_per_actor environments (16). It sends a request with recorded
timesteps, waits for the actions, waits --delay_ms in place of stepping, and sends the next request. Many
light actors share one driver process. The node is the real inference server. It assembles unrolls and
drops them; there is no learner.

Prints a row for each size of the fleet; writes fleet-<program>-<env>.json and .png. "Offered" is the
rate if replies took no time. Latency is from request to reply, as the actor sees it. "Saturated" is the
first fleet with at least 95% of the best rate. It is certainly the node's limit only if the drivers have
cores left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
from absl import flags
from matplotlib.figure import Figure

import courier
from benchmarks import costs, fleet_driver, fleet_server, options, output, servers
from benchmarks.running import ROOT
from launchers import binding

_FLEET = flags.DEFINE_list(
  'fleet', ['8', '16', '32', '64', '128', '256', '512'], 'numbers of light actors'
)
_DRIVERS = flags.DEFINE_integer('drivers', 2, 'processes that light actors share', lower_bound=1)
_DELAY = flags.DEFINE_float(
  'delay_ms', 10.0, 'duration of a step of the environments', lower_bound=0.0
)
_ENVS_PER_ACTOR = 16
_BATCH_SIZE = 256


@contextlib.contextmanager
def _driver(task: fleet_driver.Task) -> Iterator[subprocess.Popen]:
  arguments = json.dumps(dataclasses.asdict(task))
  process = subprocess.Popen(
    [sys.executable, '-m', 'benchmarks.fleet_driver', arguments],
    cwd=ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    yield process
  finally:
    process.kill()
    process.communicate()


def _say(process: subprocess.Popen) -> None:
  assert process.stdin is not None
  process.stdin.write('\n')
  process.stdin.flush()


def _hear(process: subprocess.Popen) -> str:
  assert process.stdout is not None
  line = process.stdout.readline()
  if not line:
    raise RuntimeError('a driver of light actors failed; its traceback is above.')
  return line


def measure(
  program: str, config: Any, size: int, drivers: int, delay: float, seconds: float
) -> dict[str, Any]:
  """Runs a fleet for some seconds, after a warm-up.

  Args:
    program: the program whose agent acts.
    config: resolved options.
    size: number of light actors.
    drivers: number of driver processes.
    delay: seconds between a reply and the next request.
    seconds: length of the measurement; warm-up takes a quarter of it.

  Returns:
    A row of the table, by name.
  """
  num_envs = config.acting.envs_per_actor
  batch_size = max(num_envs, min(config.inference.inference_batch_size, size * num_envs // 2))
  with contextlib.ExitStack() as stack:
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    (port,) = binding.free_ports(1)
    serve = functools.partial(fleet_server.serve, program, config, size, batch_size, port)
    pid, address = stack.enter_context(servers.running(directory, 'inference', serve))
    node, client = psutil.Process(pid), courier.Client(address)
    tasks = [
      fleet_driver.Task(
        f'127.0.0.1:{port}',
        config.run.env,
        config.run.env_options,
        num_envs,
        tuple(range(i, size, drivers)),
        delay,
      )
      for i in range(min(drivers, size))
    ]
    processes = [stack.enter_context(_driver(task)) for task in tasks]
    for process in processes:
      _hear(process)
    time.sleep(seconds / 4)
    client.measure(seconds / 4)  # Each call covers the time since the previous one.
    used, started = costs.cpu_seconds(node), time.monotonic()
    for process in processes:
      _say(process)
    time.sleep(seconds)
    used, elapsed = costs.cpu_seconds(node) - used, time.monotonic() - started
    measured = client.measure(elapsed)
    for process in processes:
      _say(process)
    counted = [json.loads(_hear(process)) for process in processes]
    memory = node.memory_full_info().uss
  latencies = np.concatenate([c['latencies'] for c in counted])
  if not len(latencies):
    raise RuntimeError(f'no actor got a reply within --seconds={seconds:g}; measure for longer.')
  rate = sum(len(c['latencies']) * num_envs / c['seconds'] for c in counted)
  return {
    'actors': size,
    'environments': size * num_envs,
    'inference_batch_size': batch_size,
    'offered_steps_per_second': size * num_envs / delay if delay else None,
    'steps_per_second': rate,
    'inference_batch_rows': measured['inference_batch_rows'],
    'inference_batch_fill': measured['inference_batch_fill'],
    'inference_latency_ms': measured['inference_latency_ms'],
    'latency_p50_ms': 1e3 * float(np.percentile(latencies, 50)),
    'latency_p99_ms': 1e3 * float(np.percentile(latencies, 99)),
    'node_busy': used / elapsed,
    'cpu_per_step': used / elapsed / rate,
    'node_memory': memory,
    'drivers_busy': [c['cpu'] / c['seconds'] for c in counted],
  }


def draw(title: str, rows: list[dict[str, Any]]) -> Figure:
  """Draws rate and latency against the size of the fleet."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  left, right = figure.subplots(1, 2)
  sizes = [row['actors'] for row in rows]
  left.loglog(sizes, [row['steps_per_second'] for row in rows], marker='.', label='answered')
  if rows[0]['offered_steps_per_second']:
    offered = [row['offered_steps_per_second'] for row in rows]
    left.loglog(sizes, offered, '--', color='0.6', label='offered')
  left.set_ylabel('steps/s')
  for percentile in ('p50', 'p99'):
    latencies = [row[f'latency_{percentile}_ms'] for row in rows]
    right.loglog(sizes, latencies, marker='.', label=percentile)
  right.set_ylabel('latency, ms')
  for axes in (left, right):
    axes.set_xlabel('light actors')
    axes.grid(alpha=0.3)
    axes.legend()
  figure.suptitle(title, fontsize='medium')
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table and writes the results."""
  del argv
  given, delay = options.launch_flags(), _DELAY.value
  config = options.config({'envs_per_actor': _ENVS_PER_ACTOR, 'inference_batch_size': _BATCH_SIZE})
  program = given['program']
  print(
    f'{program} on {config.run.env}, {config.acting.envs_per_actor} environments each, '
    f'{delay:g} ms a step, {output.cores()} CPU cores'
  )
  table = output.Table(
    actors='>6',
    steps_per_s='>11,.0f',
    offered='>11,.0f',
    batch_rows='>10.1f',
    fill='>5.0%',
    p50_ms='>8.1f',
    p99_ms='>8.1f',
    node_cores='>10.2f',
    CPU_us_per_step='>15,.2f',
    MiB='>7,.0f',
    driver_cores='>12.2f',
  )
  rows = []
  for size in map(int, _FLEET.value):
    row = measure(program, config, size, _DRIVERS.value, delay / 1e3, options.SECONDS.value)
    rows.append(row)
    table.add(
      size,
      row['steps_per_second'],
      row['offered_steps_per_second'],
      row['inference_batch_rows'],
      row['inference_batch_fill'],
      row['latency_p50_ms'],
      row['latency_p99_ms'],
      row['node_busy'],
      1e6 * row['cpu_per_step'],
      row['node_memory'] / 2**20,
      sum(row['drivers_busy']),
    )
  best = max(row['steps_per_second'] for row in rows)
  saturated = next(row for row in rows if row['steps_per_second'] >= 0.95 * best)
  print(
    f'saturated from {saturated["actors"]} actors on, at {saturated["steps_per_second"]:,.0f} steps/s, '
    f'with batches {saturated["inference_batch_fill"]:.0%} full'
  )
  if saturated is rows[-1]:
    print('it may not be saturated yet: try a larger --fleet')
  record = {
    'flags': given,
    'delay_ms': delay,
    'drivers': _DRIVERS.value,
    'envs_per_actor': config.acting.envs_per_actor,
    'saturated_from': saturated['actors'],
    'rows': rows,
  }
  name = output.file_name('fleet', program, config)
  output.write(name, record, draw(f'{program} on {config.run.env}', rows))


if __name__ == '__main__':
  options.run(main)
