"""Weak scaling: one replica of Sebulba, then several, each with its own actors and replay.

python -m benchmarks.replicas
python -m benchmarks.replicas --replicas=1,2,4 --num_params=1700000

Accelerators are simulated (`benchmarks/simulated`): an inference batch and an update take a set time and
no core. The hosts' work is real, as are the JAX job, its all-reduce (Gloo, over the loopback), the
monitor and the launcher. All replicas share the cores of this machine, so an update takes long enough
that one replica uses a small part of a core. --num_params float32 are reduced in each update; on TPUs
they would pass the interconnect, here they use the cores as well.

Prints a row for each number of replicas, beside the rate that the stages of one replica and the
all-reduce between two processes predict (`benchmarks.prediction`). Efficiency is the rate of a replica
beside that of one replica alone. Writes replicas-simulated.json and .png. Every option of Sebulba is a
flag.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from absl import flags
from matplotlib.figure import Figure

from benchmarks import all_reduce, end_to_end, options, output, pipeline, prediction
from benchmarks.simulated.program import PROGRAM
from programs.options import flags as config_flags

_REPLICAS = flags.DEFINE_list('replicas', ['1', '2', '4', '8'], 'values of --num_replicas')
# 64 unrolls of 20 in 320 ms are 4,000 steps/s, which use about a tenth of a core.
_DEFAULTS = {
  'num_actors': 1,
  'envs_per_actor': 256,
  'inference_batch_size': 256,
  'inference_ms': 5.0,
  'update_ms': 320.0,
}
_REPLICA = ('inference_learner', 'replay', 'actor')


def changes(replicas: int) -> dict[str, Any]:
  """Returns the options of a run by name; those that the user gives replace the defaults."""
  defaults = {n: v for n, v in _DEFAULTS.items() if n not in config_flags.given()}
  return defaults | {'num_replicas': replicas}


def run(stages: dict[str, Any], ring: all_reduce.Ring) -> list[dict[str, Any]]:
  """Launches the program once for each number of replicas; prints and returns the rows."""
  table = output.Table(
    replicas='>8',
    steps_per_s='>11,.0f',
    efficiency='>10.2f',
    predicted='>9,.0f',
    ratio='>5.2f',
    limit='<30',
    updates_per_s='>13,.2f',
    cores_each='>10.3f',
    stages_alone='>12.3f',
    monitor='>7.3f',
    launcher='>8.3f',
    MiB_each='>8,.0f',
    start_s='>7.1f',
    machine_busy='>12.0%',
  )
  rows: list[dict[str, Any]] = []
  for n in numbers(_REPLICAS.value):
    given, config = options.launch_flags(changes(n)), options.config(changes=changes(n))
    whole = end_to_end.measure(given, config, options.SECONDS.value, options.WARM_UP.value)
    cores = output.cores()
    found = prediction.predict_replicas(stages, config, cores, ring, 4.0 * config.num_params)
    groups, rate = whole['groups'], whole['steps_per_second']
    row = {
      'replicas': n,
      'flags': given,
      'predicted': found._asdict(),
      'ratio': rate / found.steps_per_second,
      'cores_each': sum(groups[name]['busy'] for name in _REPLICA) / n,
      'memory_each': sum(groups[g]['memory'] * groups[g]['nodes'] for g in _REPLICA) / n,
      'cores_left': prediction.cores_left(whole, cores),
      **whole,
    }
    rows.append(row)
    efficiency = rate / n / (rows[0]['steps_per_second'] / rows[0]['replicas'])
    row['efficiency'] = efficiency
    table.add(
      n,
      rate,
      efficiency,
      found.steps_per_second,
      row['ratio'],
      found.limit,
      whole['learner_steps_per_second'],
      row['cores_each'],
      rate / n * found.cpu,
      groups['monitor']['busy'],
      groups['launcher']['busy'],
      row['memory_each'] / 2**20,
      whole['seconds_to_first_learner_step'],
      whole['machine_busy_share'],
    )
  return rows


def draw(rows: list[dict[str, Any]]) -> Figure:
  """Draws the measured and the predicted rates, and the efficiency."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  left, right = figure.subplots(1, 2)
  numbers = [row['replicas'] for row in rows]
  left.plot(numbers, [row['steps_per_second'] for row in rows], marker='.', label='measured')
  predicted = [row['predicted']['steps_per_second'] for row in rows]
  left.plot(numbers, predicted, '--', label='predicted')
  left.set_ylabel('steps/s')
  left.legend()
  right.plot(numbers, [row['efficiency'] for row in rows], marker='.')
  right.set_ylabel('efficiency')
  for axes in (left, right):
    axes.set_xlabel('replicas, of which each has a simulated accelerator')
    axes.set_xticks(numbers)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table and writes the results."""
  del argv
  cores = output.cores()
  one = options.launch_flags(changes(1))
  seconds, repeats = options.STAGE_SECONDS.value, options.REPEATS.value
  measured = [
    pipeline.measure_stages(one, seconds, repeats, prediction.PAUSE_MS)['stages'] for _ in range(2)
  ]
  # Other programs can only prolong a set time.
  stages = {
    name: cost | {'wall': min(costs[name]['wall'] for costs in measured)}
    for name, cost in prediction.mean(measured).items()
  }
  pipeline.print_stages(stages)
  ring = all_reduce.measure(cores)
  print(
    f'\n{cores} cores; an all-reduce between two processes takes {2e3 * ring.hop_seconds:.2f} ms and '
    f'sends {ring.bytes_per_second / 1e9:.2f} GB/s\n'
  )
  rows = run(stages, ring)
  if any(row['cores_left'] < prediction.QUIET * cores for row in rows):
    print('other processes took more than a tenth of the cores; repeat it on a quiet machine')
  record = {'stages': stages, 'all_reduce': ring._asdict(), 'rows': rows}
  output.write('replicas-simulated', record, draw(rows))


def numbers(texts: Sequence[str]) -> list[int]:
  """Parses the value of --replicas.

  Raises:
    ValueError: one is not a number from 1 on; one sentence.
  """
  for text in texts:
    if not text.isdigit() or not int(text):
      raise ValueError(f'--replicas={",".join(texts)}: {text!r} is not a number from 1 on.')
  return [int(text) for text in texts]


def _checked() -> None:
  """Rejects bad options before the first launch."""
  for number in numbers(_REPLICAS.value):
    options.config(changes=changes(number))


if __name__ == '__main__':
  options.run(main, _checked, programs=(PROGRAM,))
