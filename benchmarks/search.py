"""Measures MuZero's search: simulations/s and the time of an answer, against batch size and simulations.

python -m benchmarks.search                                      Catch
python -m benchmarks.search --env=minatar:Breakout --batches=16,64 --simulations=8,32
python -m benchmarks.search --env=cartpole --search=puct --repeats=5

Prints a table; writes search-<program>-<env>.json and .png. An answer is what the inference server
computes for a batch: the networks, and the search of every environment. A simulation is one expansion of
one environment's tree. Parameters are new, compilation is excluded, and nothing else runs. Every figure
is the median of --repeats timings of --stage_seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import flags
from matplotlib.figure import Figure

from agents.types import FIRST, Timestep
from benchmarks import compiled, options, output

_BATCHES = flags.DEFINE_list('batches', ['1', '8', '32', '128'], 'environments in a batch')
_SIMULATIONS = flags.DEFINE_list(
  'simulations', ['2', '8', '32'], 'simulations of a search; replaces --num_simulations'
)


def sizes(flag: flags.FlagHolder[list[str]]) -> list[int]:
  """Returns the entries of a flag; raises a one-sentence ValueError if one is not a positive number."""
  try:
    values = [int(entry) for entry in flag.value]
  except ValueError:
    values = []
  if not values or min(values) < 1:
    raise ValueError(
      f'--{flag.name}={",".join(flag.value)} must be positive whole numbers: 1,8,32.'
    )
  return values


def make_answer(config: Any, batch: int) -> compiled.Work:
  """Returns a compiled function that answers a batch of first rows, and compiles it.

  Args:
    config: the program's options.
    batch: number of environments.
  """
  agent, spec = compiled.make_agent(config)
  timestep = Timestep(
    np.full(batch, FIRST),
    np.zeros(batch, np.float32),
    np.ones(batch, np.float32),
    jax.tree.map(lambda leaf: np.stack([leaf.generate_value()] * batch), spec.observations),
  )
  params = jax.jit(agent.init)(jax.random.key(0)).params
  answer = compiled.make_answer(agent, params, timestep)
  jax.block_until_ready(answer())
  return answer


def draw(title: str, rows: Sequence[dict[str, Any]]) -> Figure:
  """Draws simulations/s and the milliseconds of an answer against the batch size."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  rates, answers = figure.subplots(1, 2)
  for count in dict.fromkeys(row['simulations'] for row in rows):
    chosen = [row for row in rows if row['simulations'] == count]
    batches = [row['batch'] for row in chosen]
    rates.loglog(batches, [row['simulations_per_second'] for row in chosen], marker='.')
    milliseconds = [1e3 * row['answer_seconds'] for row in chosen]
    answers.loglog(batches, milliseconds, marker='.', label=f'{count} simulations')
  rates.set_ylabel('simulations/s')
  answers.set_ylabel('milliseconds of an answer')
  for axes in (rates, answers):
    axes.set_xlabel('environments in a batch')
    axes.grid(alpha=0.3)
  answers.legend()
  figure.suptitle(title, fontsize='medium')
  return figure


def check() -> None:
  """Raises a one-sentence ValueError if the flags do not fit together."""
  sizes(_BATCHES)
  for count in sizes(_SIMULATIONS):
    options.config(changes={'num_simulations': count})


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table and writes the results."""
  del argv
  config = options.config()
  title = f'{config.agent.search} search on {config.run.env}'
  device = jax.local_devices()[0].device_kind
  print(f'{title}, one device ({device}), {output.cores()} CPU cores')
  table = output.Table(
    batch='>5',
    simulations='>11',
    ms_an_answer='>12.2f',
    simulations_per_s='>17,.0f',
    steps_per_s='>12,.0f',
  )
  rows: list[dict[str, Any]] = []
  for count in sizes(_SIMULATIONS):
    sized = options.config(changes={'num_simulations': count})
    for batch in sizes(_BATCHES):
      answer = make_answer(sized, batch)
      taken = statistics.median(
        compiled.seconds_of(answer, options.STAGE_SECONDS.value)
        for _ in range(options.REPEATS.value)
      )
      row = {
        'batch': batch,
        'simulations': count,
        'answer_seconds': taken,
        'simulations_per_second': batch * count / taken,
        'environments_per_second': batch / taken,
      }
      rows.append(row)
      table.add(
        batch, count, 1e3 * taken, row['simulations_per_second'], row['environments_per_second']
      )
  record = {'flags': options.launch_flags(), 'device': device, 'results': rows}
  output.write(output.file_name('search', options.program(), config), record, draw(title, rows))


if __name__ == '__main__':
  options.run(main, check, programs=('muzero',))
