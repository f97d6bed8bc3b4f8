"""Compares a program's rate with the ideal rate on this machine, and shows where the difference goes.

python -m benchmarks.pipeline --program=sebulba --env=catch
python -m benchmarks.pipeline --program=r2d2 --env=atari:Pong --min_replay_size=64

Every option of the program is a flag. Prints two tables; writes pipeline-<program>-<env>.json and .png.
The first table has the CPU time of a step in each stage alone. The ideal is cores / sum steps a second:
all cores busy with these stages only. The second table measures the program under launch.py: the busy
cores of each node, its CPU time per step, and its reported waiting. A step is one row of one
environment: a decision or, once an episode, a reset. Fails if XLA compiles anything after warm-up.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import Any

from matplotlib.figure import Figure

from benchmarks import end_to_end, options, output
from benchmarks.running import ROOT


def measure_stages(
  flags: dict[str, str], seconds: float, repeats: int, pause_ms: float = 0.0
) -> dict[str, Any]:
  """Runs `benchmarks.stages` in a separate process; returns its measurements.

  Args:
    flags: for `benchmarks.stages`, by name.
    seconds: length of each timing of a stage.
    repeats: timings of each stage.
    pause_ms: milliseconds of sleep before each call of a stage.
  """
  arguments = flags | {'stage_seconds': str(seconds), 'repeats': str(repeats)}
  arguments |= {'pause_ms': str(pause_ms)} if pause_ms else {}
  process = subprocess.run(
    [sys.executable, '-m', 'benchmarks.stages', *(f'--{n}={v}' for n, v in arguments.items())],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  if process.returncode:
    raise RuntimeError(f'the stages could not be measured:\n{process.stderr}')
  return json.loads(process.stdout.splitlines()[-1])


def print_stages(stages: dict[str, Any]) -> dict[str, float]:
  """Prints a line for each stage; returns the CPU seconds of a step over all stages, by node."""
  by_node: dict[str, float] = {}
  for cost in stages.values():
    for node, used in cost['cpu'].items():
      by_node[node] = by_node.get(node, 0.0) + used
  total = sum(by_node.values())
  table = output.Table(stage='<14', CPU_us_per_step='>15,.2f', share='>6.1%', where='<50')
  for name, cost in stages.items():
    where = ', '.join(f'{node} {1e6 * used:,.2f}' for node, used in cost['cpu'].items())
    used = sum(cost['cpu'].values())
    table.add(name, 1e6 * used, used / total, where)
  table.add('sum', 1e6 * total, 1.0, '')
  return by_node


def print_groups(groups: dict[str, Any], alone: dict[str, float]) -> None:
  """Prints a line for each group of nodes, beside the sum of its stages alone."""
  table = output.Table(
    nodes='<20',
    busy_cores='>10.2f',
    CPU_us_per_step='>15,.2f',
    stages_alone='>12,.2f',
    MiB_each='>8,.0f',
    reports='<70',
  )
  for name, group in groups.items():
    shares = ', '.join(
      f'{words} {share:.2f}' if 'flight' in words else f'{words} {share:.0%}'
      for words, share in group['shares'].items()
    )
    table.add(
      f'{group["nodes"]} {name}',
      group['busy'],
      1e6 * group['cpu_per_step'],
      1e6 * alone[name] if name in alone else None,
      group['memory'] / 2**20,
      shares,
    )
  busy, used = (sum(group[k] for group in groups.values()) for k in ('busy', 'cpu_per_step'))
  table.add('sum', busy, 1e6 * used, 1e6 * sum(alone.values()), None, '')


def draw(title: str, stages: dict[str, Any], groups: dict[str, Any]) -> Figure:
  """Draws the CPU time of a step, by stage alone and by the nodes of the program."""
  figure = Figure(figsize=(9, 4), layout='constrained')
  axes = figure.add_subplot()
  bars = {
    'stages alone': {name: sum(cost['cpu'].values()) for name, cost in stages.items()},
    'the program': {name: group['cpu_per_step'] for name, group in groups.items()},
  }
  colors = itertools.count()
  for place, (label, parts) in enumerate(bars.items()):
    bottom = 0.0
    for name, seconds in parts.items():
      color, hatch = f'C{next(colors) % 10}', '//' * place
      axes.bar(label, 1e6 * seconds, 0.5, 1e6 * bottom, color=color, hatch=hatch, label=name)
      bottom += seconds
    axes.text(place, 1e6 * bottom, f'{1e6 * bottom:.1f}', ha='center', va='bottom')
  axes.set_ylabel('CPU microseconds per step')
  axes.set_title(title, fontsize='medium')
  figure.legend(loc='outside right center')
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the tables and writes the results."""
  del argv
  config, flags = options.config(), options.launch_flags()
  cores = output.cores()
  print(f'{flags["program"]} on {config.run.env}, {cores} CPU cores')
  alone = measure_stages(flags, options.STAGE_SECONDS.value, options.REPEATS.value)
  assert not alone['compiled_while_timing'], 'inference compiled something after warm-up'
  by_node = print_stages(alone['stages'])
  total = sum(by_node.values())
  whole = end_to_end.measure(flags, config, options.SECONDS.value, options.WARM_UP.value)
  print()
  print_groups(whole['groups'], by_node)
  ideal, rate = cores / total, whole['steps_per_second']
  learned = whole['learned_steps_per_second']
  print(f'\nideal {ideal:,.0f} steps/s, end to end {rate:,.0f}, ratio {rate / ideal:.2f}')
  print(
    f'decisions {whole["actor_steps_per_second"]:,.0f}/s, frames '
    f'{whole["environment_frames_per_second"]:,.0f}/s, learned from {learned:,.0f} steps/s, '
    f'updates {whole["learner_steps_per_second"]:,.2f}/s; inference batches of '
    f'{whole["inference_batch_rows"]:.1f} rows, {whole["inference_batch_fill"]:.0%} full; the machine '
    f'{whole["machine_busy_share"]:.0%} busy; nothing was compiled after warm-up'
  )
  if learned < 0.9 * rate:
    print('learning was behind acting: measure for longer (--warm_up, --seconds)')
  record = {
    'flags': flags,
    'stages': alone['stages'],
    'cpu_seconds_per_step': total,
    'ideal_steps_per_second': ideal,
    'ratio': rate / ideal,
    'end_to_end': whole,
  }
  title = f'{flags["program"]} on {config.run.env}'
  figure = draw(title, alone['stages'], whole['groups'])
  output.write(output.file_name('pipeline', flags['program'], config), record, figure)


if __name__ == '__main__':
  options.run(main)
