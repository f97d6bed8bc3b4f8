"""Measures the time of an update with each recurrent core, beside that of the LSTM.

python -m benchmarks.recurrent                                   R2D2 on Catch, unrolls of 20 and 80
python -m benchmarks.recurrent --program=sebulba --agent=ppo --lengths=128
python -m benchmarks.recurrent --core_size=512 --batch_size=64 --repeats=5

Prints a table; writes recurrent-<program>-<env>.json and .png. An update is what the learner computes
for a batch that is on its device, and an answer what the inference server computes for as many
environments. Parameters are new, compilation is excluded, and nothing else runs. The cores take turns.
Every figure is the median of --repeats timings of --stage_seconds.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from absl import flags
from matplotlib.figure import Figure

from agents.networks.config import CORES
from agents.types import MID
from benchmarks import compiled, options, output
from nodes.unrolls.assembler import unroll_spec

_LENGTHS = flags.DEFINE_list('lengths', ['20', '80'], 'transitions of an unroll')
_CORES = tuple(name for name in CORES if name != 'none')  # The LSTM is the first.


def sized(core: str, length: int) -> Any:
  """Returns the program's config with a core and unrolls of a length.

  Raises:
    ValueError: the options do not fit together; one sentence.
  """
  return options.config(changes={'core': core, 'unroll_length': length})


def lengths() -> list[int]:
  """Returns the entries of --lengths; raises a one-sentence ValueError if they are no numbers."""
  try:
    return [int(entry) for entry in _LENGTHS.value]
  except ValueError:
    given = ','.join(_LENGTHS.value)
    raise ValueError(f'--lengths={given} must be whole numbers: 20,80.') from None


def make_work(config: Any) -> tuple[compiled.Work, compiled.Work]:
  """Returns compiled functions that do an update and an answer, and compiles them.

  Args:
    config: the program's options.
  """
  agent, spec = compiled.make_agent(config)
  batch = config.replay.batch_size
  state = jax.jit(agent.init)(jax.random.key(0))
  unrolls = jax.tree.map(lambda x: jnp.zeros((batch, *x.shape), x.dtype), unroll_spec(agent, spec))
  # Within an episode, so that no row is masked.
  timestep = unrolls.timestep._replace(
    step_type=jnp.full_like(unrolls.timestep.step_type, MID),
    discount=jnp.ones_like(unrolls.timestep.discount),
  )
  unrolls = unrolls._replace(timestep=timestep)
  update = functools.partial(jax.jit(agent.update), state, unrolls)
  first = jax.tree.map(lambda x: x[:, 0], timestep)
  answer = compiled.make_answer(agent, state.params, first)
  jax.block_until_ready((update(), answer()))
  return update, answer


def draw(title: str, rows: Sequence[dict[str, Any]]) -> Figure:
  """Draws the milliseconds of an update against the length of an unroll."""
  figure = Figure(figsize=(6, 4), layout='constrained')
  axes = figure.subplots()
  for core in _CORES:
    chosen = [row for row in rows if row['core'] == core]
    milliseconds = [1e3 * row['update_seconds'] for row in chosen]
    axes.plot([row['unroll_length'] for row in chosen], milliseconds, marker='.', label=core)
  axes.set_xlabel('transitions of an unroll')
  axes.set_ylabel('milliseconds of an update')
  axes.set_ylim(bottom=0)
  axes.grid(alpha=0.3)
  axes.legend()
  figure.suptitle(title, fontsize='medium')
  return figure


def check() -> None:
  """Raises a one-sentence ValueError if the flags do not fit together."""
  for length in lengths():
    for core in _CORES:
      sized(core, length)


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the table and writes the results."""
  del argv
  config = options.config()
  device = jax.local_devices()[0].device_kind
  batch = config.replay.batch_size
  title = f'{config.run.agent or options.program()} on {config.run.env}, batches of {batch} unrolls'
  print(f'{title}, one device ({device}), {output.cores()} CPU cores')
  table = output.Table(
    unroll_length='>13',
    core='>5',
    ms_an_update='>12.2f',
    beside_the_LSTM='>15.2f',
    ms_an_answer='>12.2f',
  )
  rows: list[dict[str, Any]] = []
  for length in lengths():
    works = {core: make_work(sized(core, length)) for core in _CORES}
    timings: dict[str, list[tuple[float, ...]]] = {core: [] for core in _CORES}
    for _ in range(options.REPEATS.value):
      for core, work in works.items():
        timings[core].append(
          tuple(compiled.seconds_of(w, options.STAGE_SECONDS.value) for w in work)
        )
    for core, timed in timings.items():
      update, answer = map(statistics.median, zip(*timed, strict=True))
      row = {
        'unroll_length': length,
        'core': core,
        'update_seconds': update,
        'answer_seconds': answer,
        'timings': timed,
      }
      rows.append(row)
      lstm = rows[-1 - _CORES.index(core)]['update_seconds']
      table.add(length, core, 1e3 * update, update / lstm, 1e3 * answer)
  record = {'flags': options.launch_flags(), 'device': device, 'results': rows}
  name = output.file_name('recurrent', options.program(), options.config(changes={'core': 'none'}))
  output.write(name, record, draw(title, rows))


if __name__ == '__main__':
  options.run(main, check, programs=('r2d2', 'sebulba', 'impala'))
