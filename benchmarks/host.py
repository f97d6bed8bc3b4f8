"""Measures what the host of an accelerator carries, with computation that takes time but no CPU.

python -m benchmarks.host
python -m benchmarks.host --inference_nodes=1 --inference_ms=0.5 --update_ms=5

Launches Sebulba's graph (`benchmarks/simulated`): actors whose steps are nearly free send recorded Atari
screens, 84x84 bytes each; an inference batch and a learner step take a set time and hardly any CPU. What
is left is the way of the rows: requests, unrolls, Reverb, batches. Every option of Sebulba is a flag.

Prints the CPU time of a step by stage and by node, the steps/s, and both beside the time that it takes
to copy the bytes of a row once. Writes host-simulated.json and .png.
"""

from __future__ import annotations

import math
import time

import numpy as np

from benchmarks import end_to_end, options, output, pipeline
from benchmarks.simulated.program import PROGRAM
from environments import nests
from environments import registry as environments

# More than any cache holds.
_COPIED_BYTES = 256 << 20
_COPIES = 7


def copied_bytes_per_second() -> float:
  """Returns the bytes/s that one core copies from memory to memory; the median of some copies."""
  source, target = (np.zeros(_COPIED_BYTES, np.uint8) for _ in range(2))
  source[:], target[:] = 1, 2  # So that every page exists.
  rates = []
  for _ in range(_COPIES):
    started = time.perf_counter()
    np.copyto(target, source)
    rates.append(_COPIED_BYTES / (time.perf_counter() - started))
  return float(np.median(rates))


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the tables and writes the results."""
  del argv
  config, flags = options.config(), options.launch_flags()
  cores, copied = output.cores(), copied_bytes_per_second()
  alone = pipeline.measure_stages(flags, options.STAGE_SECONDS.value, options.REPEATS.value)
  by_node = pipeline.print_stages(alone['stages'])
  whole = end_to_end.measure(flags, config, options.SECONDS.value, options.WARM_UP.value)
  print()
  pipeline.print_groups(whole['groups'], by_node)

  observation = environments.make_spec(config.run.env, config.run.env_options).observations
  leaves = nests.leaves(observation)
  row_bytes = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)
  rate = whole['steps_per_second']
  used = sum(group['cpu_per_step'] for group in whole['groups'].values())
  once = row_bytes / copied
  print(
    f'\n{rate:,.0f} steps/s on {cores} cores, learned from '
    f'{whole["learned_steps_per_second"]:,.0f} steps/s; inference batches of '
    f'{whole["inference_batch_rows"]:.1f} rows; the machine {whole["machine_busy_share"]:.0%} busy'
  )
  print(
    f'a step uses {1e6 * used:.1f} us of CPU; copying its {row_bytes:,} bytes once takes '
    f'{1e6 * once:.2f} us at {copied / 1e9:.1f} GB/s: {used / once:.0f} times'
  )
  print(
    f'{cores} cores that only copied each row once would carry {cores / once:,.0f} steps/s; '
    f'the rows are {rate * row_bytes / 1e6:,.0f} MB/s'
  )
  record = {
    'flags': flags,
    'stages': alone['stages'],
    'end_to_end': whole,
    'row_bytes': row_bytes,
    'copied_bytes_per_second': copied,
    'cpu_seconds_per_step': used,
    'times_of_a_copy': used / once,
  }
  figure = pipeline.draw('a host with simulated computation', alone['stages'], whole['groups'])
  apart = f'-{config.inference.inference_nodes}-apart' if config.inference.inference_nodes else ''
  output.write(f'host-simulated{apart}', record, figure)


if __name__ == '__main__':
  options.run(main, programs=(PROGRAM,))
