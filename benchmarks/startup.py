"""Measures the time from the command to the first learner step, and where it goes.

python -m benchmarks.startup --program=sebulba --env=catch
python -m benchmarks.startup --program=r2d2 --env=cartpole --repeats=5

Prints three tables; writes startup-<program>-<env>.json and .png. The first has the consecutive phases
until the first learner step starts; they add up. The second has the resources that the nodes' processes
used by then. The third times the imports of each kind of process, alone in a new process; in a real
launch on few cores the imports compete. Every figure is the median of --repeats runs.
"""

from __future__ import annotations

import datetime
import re
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil
from absl import flags
from matplotlib.figure import Figure

from benchmarks import costs, end_to_end, options, output, roles
from benchmarks.running import ROOT, RunningProgram
from rundir import audit, node_files

# Imports of each process: the launcher, and each node's class with the imports of its run method.
IMPORTS = {
  'launcher': 'launch',
  'monitor': 'launchers.node_entry, launchpad, nodes.monitor, tensorboardX',
  'replay': 'launchers.node_entry, launchpad, nodes.replay',
  'inference_learner': 'launchers.node_entry, launchpad, nodes.learner, '
  'nodes.unrolls.reader, nodes.unrolls.writer',
  'actor': 'launchers.node_entry, launchpad, nodes.actor',
}
_IMPORTS = flags.DEFINE_list('imports', list(IMPORTS), 'processes whose imports are timed')
_LOGGED = re.compile(r'^[A-Z](\d{4}) (\d\d:\d\d:\d\d\.\d+) .*\n?', re.MULTILINE)


def learner() -> str:
  """Returns the process name of the learner, such as 'learner-0'."""
  return f'{roles.learns(options.config())}-0'


def compile_times(run_dir: str) -> tuple[float, float]:
  """Returns the first and last times of XLA compilation in the learner's process, in Unix time."""
  with open(node_files.log_path(run_dir, learner()), errors='replace') as f:
    lines = f.read()
  year = datetime.datetime.now().year
  times = [
    datetime.datetime.strptime(f'{year}{match[1]} {match[2]}', '%Y%m%d %H:%M:%S.%f').timestamp()
    for match in _LOGGED.finditer(lines)
    if 'Finished' in match[0] or 'Compiling' in match[0]
  ]
  return min(times), max(times)


def follow(flags: dict[str, str]) -> dict[str, Any]:
  """Launches a program and follows it to its first learner step.

  Returns:
    phases: seconds by name, in order; they add up to `seconds`.
    seconds: from the command to the first learner step.
    compiled: seconds of XLA compilation by function name.
    nodes: CPU seconds and own bytes of each process at the first learner step.
  """
  started = time.time()
  with end_to_end.running({**flags, 'audit': 'true'}, {'JAX_LOG_COMPILES': '1'}) as program:
    name = learner()
    program.wait_until(lambda: name in program.nodes(), 'the learner is started')
    born = program.nodes()[name].create_time()
    produced = _recorded(program, audit.PRODUCED)
    trained = _recorded(program, audit.TRAINED)
    nodes = end_to_end.all_nodes(program)
    used = {
      name: {'cpu': costs.cpu_seconds(node), 'memory': node.memory_full_info().uss}
      for name, node in nodes.items()
    }
    compiled = end_to_end.compilations(program.run_dir)
    begun, ended = compile_times(program.run_dir)
  marks = {
    'launcher: command to processes': born,
    'learner: interpreter and imports': begun,
    'learner: compiling': min(ended, produced),
    'Reverb, actors and the first unroll': produced,
    'the first batch': trained,
  }
  phases, last = {}, started
  for name, mark in marks.items():
    phases[name], last = mark - last, mark
  by_program: dict[str, float] = {}
  for name, seconds in compiled:
    by_program[name] = by_program.get(name, 0.0) + seconds
  return {
    'phases': phases,
    'seconds': trained - started,
    'compiled': by_program,
    'nodes': used,
  }


def _recorded(program: RunningProgram, name: str) -> float:
  """Waits until the audit records the first unroll under `name`; returns the Unix time."""
  program.wait_until(lambda: len(audit.read(program.run_dir, name)), f'an unroll is {name}')
  return time.time()


def time_imports(modules: str) -> dict[str, float]:
  """Returns the seconds and CPU seconds that a new interpreter takes for some imports."""
  before, started = psutil.Process().cpu_times(), time.monotonic()
  subprocess.run([sys.executable, '-c', f'import {modules}'], cwd=ROOT, check=True)
  after = psutil.Process().cpu_times()
  cpu = after.children_user + after.children_system - before.children_user - before.children_system
  return {'seconds': time.monotonic() - started, 'cpu': cpu}


def _median(runs: list[Any], *path: str) -> float:
  """Returns the median of the values at a path in each run; missing values count as 0."""
  values: list[Any] = runs
  for name in path:
    values = [value.get(name, {}) for value in values]
  return statistics.median(float(value or 0.0) for value in values)


def draw(title: str, phases: dict[str, float]) -> Figure:
  """Draws the phases, one after the other."""
  figure = Figure(figsize=(9, 3), layout='constrained')
  axes = figure.add_subplot()
  begin = 0.0
  for place, seconds in enumerate(phases.values()):
    axes.barh(-place, seconds, left=begin, color=f'C{place}')
    begin += seconds
  axes.set_yticks([-place for place in range(len(phases))], list(phases))
  axes.set_xlabel('seconds since the command')
  axes.set_title(title, fontsize='medium')
  axes.grid(alpha=0.3, axis='x')
  return figure


def main(argv: list[str]) -> None:
  """Runs the benchmark; prints the tables and writes the results."""
  del argv
  config, given = options.config(), options.launch_flags()
  repeats = range(options.REPEATS.value)
  runs = [follow(given) for _ in repeats]
  imports = {
    process: [time_imports(IMPORTS[process]) for _ in repeats] for process in _IMPORTS.value
  }

  print(f'{given["program"]} on {config.run.env}, {output.cores()} CPU cores')
  phases = {name: _median(runs, 'phases', name) for name in runs[0]['phases']}
  total = _median(runs, 'seconds')
  table = output.Table(to_the_first_learner_step='<40', seconds='>8.2f')
  for name, seconds in phases.items():
    table.add(name, seconds)
  table.add('in all', total)
  compiled = {name: _median(runs, 'compiled', name) for name in runs[0]['compiled']}
  longest = sorted(compiled, key=lambda name: -compiled[name])[:5]
  print('compiled by XLA: ' + ', '.join(f'{name} {compiled[name]:.2f} s' for name in longest))

  print()
  table = output.Table(process='<22', CPU_seconds='>11.2f', own_MiB='>8,.0f')
  nodes = {
    name: {what: _median(runs, 'nodes', name, what) for what in ('cpu', 'memory')}
    for name in sorted(runs[0]['nodes'])
  }
  for name, node in nodes.items():
    table.add(name, node['cpu'], node['memory'] / 2**20)
  cpu, memory = (sum(node[what] for node in nodes.values()) for what in ('cpu', 'memory'))
  table.add('in all', cpu, memory / 2**20)

  print()
  table = output.Table(imports_of='<36', seconds='>8.2f', CPU_seconds='>11.2f')
  alone = {
    process: {what: _median(timings, what) for what in ('seconds', 'cpu')}
    for process, timings in imports.items()
  }
  for process, timing in alone.items():
    table.add(process, timing['seconds'], timing['cpu'])
  record = {
    'flags': given,
    'seconds_to_first_learner_step': total,
    'phases': phases,
    'compiled': compiled,
    'nodes': nodes,
    'imports': alone,
    'runs': runs,
  }
  title = f'{given["program"]} on {config.run.env}'
  output.write(output.file_name('startup', given['program'], config), record, draw(title, phases))


if __name__ == '__main__':
  options.run(main)
