"""Measures how a program's rate depends on one size option: one launch for each value.

python -m benchmarks.scaling --program=sebulba --env=catch        all four sweeps
python -m benchmarks.scaling --program=r2d2 --env=cartpole --sweeps=actors,batch
python -m benchmarks.scaling --sweeps=split --splits=0:0,0:1,0-1:2-7

actors    the number of actors, with the memory and start-up time that each adds
envs      the environments of each actor
batch     the maximum environments in an inference batch; the program has --batch_envs environments,
          and a request holds as many as the smallest batch
split     the assignment of 8 fake devices, which share the CPU, to actors and learners

Prints a table for each sweep; writes scaling-<sweep>-<program>-<env>.json and .png. The flags set every
other option. A step is one row of one environment, as in `benchmarks.pipeline`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from absl import flags
from matplotlib.figure import Figure

from benchmarks import end_to_end, options, output, roles

_SWEEPS = flags.DEFINE_list('sweeps', ['actors', 'envs', 'batch', 'split'], 'sweeps to run')
_ACTORS = flags.DEFINE_list('actors', ['1', '2', '4', '8', '16'], 'values of --num_actors')
_ENVS = flags.DEFINE_list(
  'envs', ['8', '16', '32', '64', '128', '256'], 'values of --envs_per_actor'
)
_BATCHES = flags.DEFINE_list(
  'batches', ['16', '32', '64', '128', '256'], 'values of --inference_batch_size, with --batch_envs'
)
_BATCH_ENVS = flags.DEFINE_integer(
  'batch_envs', 256, 'environments of the program, over its actors, in the batch sweep'
)
_SPLITS = flags.DEFINE_list(
  'splits',
  ['0:0', '0:1-7', '0-1:2-7', '0-3:4-7'],
  'fake devices, as actor devices:learner devices; ranges include their ends',
)
_SPLIT_BATCH_SIZE = flags.DEFINE_integer(
  'split_batch_size',
  84,
  'the --batch_size of the split sweep; a multiple of every number of learner devices',
)
_FAKE_DEVICES = {'XLA_FLAGS': '--xla_force_host_platform_device_count=8', 'JAX_PLATFORMS': 'cpu'}


def points(sweep: str) -> list[tuple[str, dict[str, Any]]]:
  """Returns the label and the options, by name, of each point of a sweep.

  Raises:
    ValueError: there is no such sweep.
  """
  if sweep == 'actors':
    return [(n, {'num_actors': int(n)}) for n in _ACTORS.value]
  if sweep == 'envs':
    return [(n, {'envs_per_actor': int(n)}) for n in _ENVS.value]
  if sweep == 'batch':
    envs = _BATCH_ENVS.value // options.config().num_actors
    groups = max(1, envs // min(map(int, _BATCHES.value)))
    fixed = {'envs_per_actor': envs, 'env_groups': groups}
    return [(n, fixed | {'inference_batch_size': int(n)}) for n in _BATCHES.value]
  if sweep == 'split':
    fixed = {'batch_size': _SPLIT_BATCH_SIZE.value}
    return [(text, fixed | split(text)) for text in _SPLITS.value]
  raise ValueError(f'--sweeps={sweep} is none of actors, envs, batch, split.')


def split(text: str) -> dict[str, Any]:
  """Parses a text such as '0-1:2-7' into device options."""
  devices = []
  for part in text.split(':'):
    first, _, last = part.partition('-')
    devices.append(tuple(range(int(first), int(last or first) + 1)))
  actors, learners = devices
  return {'actor_devices': actors, 'learner_devices': learners}


def run(sweep: str) -> list[dict[str, Any]]:
  """Launches the program once for each point of a sweep; prints and returns the rows."""
  table = output.Table(
    **{sweep: '>10'},
    steps_per_s='>11,.0f',
    learned='>9,.0f',
    updates_per_s='>13,.2f',
    batch_rows='>10.1f',
    fill='>5.0%',
    inference_cores='>15.2f',
    actor_cores='>11.2f',
    actor_MiB='>9,.1f',
    start_s='>7.1f',
    machine_busy='>12.0%',
  )
  rows = []
  for label, changes in points(sweep):
    row: dict[str, Any] = {'point': label, 'flags': options.launch_flags(changes)}
    row |= end_to_end.measure(
      row['flags'],
      options.config(changes=changes),
      options.SECONDS.value,
      options.WARM_UP.value,
      _FAKE_DEVICES if sweep == 'split' else {},
    )
    rows.append(row)
    table.add(
      label,
      row['steps_per_second'],
      row['learned_steps_per_second'],
      row['learner_steps_per_second'],
      row['inference_batch_rows'],
      row['inference_batch_fill'],
      row['groups'][roles.infers(options.config())]['busy'],
      row['groups']['actor']['busy'],
      row['groups']['actor']['memory'] / 2**20,
      row['seconds_to_first_learner_step'],
      row['machine_busy_share'],
    )
  return rows


def for_each_actor(rows: list[dict[str, Any]]) -> dict[str, float]:
  """Returns the memory (bytes) and start-up seconds that one actor adds, by least squares.

  Args:
    rows: rows of the sweep over actors, at least two.
  """
  numbers = [float(row['point']) for row in rows]
  memory = [sum(node['memory'] for node in row['nodes'].values()) for row in rows]
  seconds = [row['seconds_to_first_learner_step'] for row in rows]
  return {
    'memory': float(np.polyfit(numbers, memory, 1)[0]),
    'seconds': float(np.polyfit(numbers, seconds, 1)[0]),
  }


def draw(title: str, sweep: str, rows: list[dict[str, Any]]) -> Figure:
  """Draws the rate and the busy cores of each group."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  left, right = figure.subplots(1, 2)
  places = range(len(rows))
  left.plot(places, [row['steps_per_second'] for row in rows], marker='.', label='acted')
  left.plot(places, [row['learned_steps_per_second'] for row in rows], '--', label='learned from')
  left.set_ylabel('steps/s')
  for group in (name for name in rows[0]['groups'] if name not in ('launcher', 'monitor')):
    busy = [row['groups'][group]['busy'] for row in rows]
    right.plot(places, busy, marker='.', label=group)
  right.set_ylabel('cores kept busy')
  for axes in (left, right):
    axes.set_xlabel(sweep)
    axes.set_xticks(places, [row['point'] for row in rows])
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
  figure.suptitle(title, fontsize='medium')
  return figure


def main(argv: list[str]) -> None:
  """Runs the sweeps; prints the tables and writes the results."""
  del argv
  config, program = options.config(), options.program()
  for sweep in _SWEEPS.value:  # Rejects bad options before the first launch.
    for _, changes in points(sweep):
      options.config(changes=changes)
  print(f'{program} on {config.run.env}, {output.cores()} CPU cores')
  for sweep in _SWEEPS.value:
    rows = run(sweep)
    record: dict[str, Any] = {'sweep': sweep, 'rows': rows}
    if sweep == 'actors' and len(rows) > 1:
      record['for_each_actor'] = added = for_each_actor(rows)
      print(
        f'each actor adds {added["memory"] / 2**20:,.1f} MiB over all nodes, and '
        f'{added["seconds"]:.2f} s to the first learner step'
      )
    figure = draw(f'{program} on {config.run.env}', sweep, rows)
    output.write(output.file_name(f'scaling-{sweep}', program, config), record, figure)
    print()


if __name__ == '__main__':
  options.run(main)
