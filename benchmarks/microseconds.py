"""Shows where a microsecond of a step goes: the CPU time of each node, by what runs in it.

python -m benchmarks.microseconds --program=sebulba --env=catch
python -m benchmarks.microseconds --program=benchmarks/simulated/program.py:make_program

Launches the program without an evaluator, and after --warm_up samples its processes for --seconds by
Linux's perf, which has to be installed (package linux-perf). Prints a table of microseconds a
decision by group of nodes and by library, and writes microseconds-<program>-<env>.json and .png.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from benchmarks import costs, end_to_end, options, output, roles
from benchmarks.running import RunningProgram
from environments import user_file
from rundir import curves

_HERTZ = 997  # A prime, so that no periodic work is always or never sampled.
_FRESH = re.compile(r'clear_page|page_fault|anonymous_page|handle_mm_fault|charge|folio|unmap|zap')
_COPY = re.compile(r'mem(move|cpy|set)')
# What runs, by the file that it is part of; the first that matches.
_FILES = (
  ('Python', re.compile(r'libpython|/python[0-9.]*$')),
  ('NumPy', re.compile('numpy')),
  ('LZ4', re.compile('cramjam')),
  ('XLA and JAX', re.compile(r'jax|xla|\[JIT\]|//anon|perf-\d+\.map|unknown')),
  ('Reverb', re.compile('reverb|tensorflow')),
  ('libc', re.compile(r'libc[.-]|ld-linux|libpthread|libstdc|libgcc')),
)
KINDS = (
  'Python', 'NumPy', 'LZ4', 'XLA and JAX', 'Reverb', 'copies', 'libc', 'fresh pages', 'kernel', 'others'
)  # fmt: skip
_SAMPLE = re.compile(r'^\s*(\d+)\s+[0-9a-f]+ (.*) \((.*)\)$')


def kind(symbol: str, file: str) -> str:
  """Returns which of `KINDS` a sample is, by its symbol and the file that has it."""
  if file.startswith('[kernel') or file in ('[vdso]', '[guest.kernel.kallsyms]'):
    return 'fresh pages' if _FRESH.search(symbol) else 'kernel'
  if _COPY.search(symbol):
    return 'copies'
  return next((name for name, files in _FILES if files.search(file)), 'others')


def counted(lines: Iterable[str]) -> dict[int, collections.Counter[str]]:
  """Returns the number of samples of each kind by process, from what `perf script` prints."""
  found: dict[int, collections.Counter[str]] = collections.defaultdict(collections.Counter)
  for line in lines:
    if match := _SAMPLE.match(line):
      process, symbol, file = match.groups()
      found[int(process)][kind(symbol, file)] += 1
  return found


def _steps_per_second(program: RunningProgram, learner: str, since: float) -> float:
  """Returns the actor steps a second in the reports of a learner from a second of the run on."""
  rows = curves.read(program.run_dir, learner, 'seconds', 'actor_steps')
  (first, before), *_, (last, after) = [row for row in rows if row[0] >= since]
  return (after - before) / (last - first)


def draw(title: str, groups: Mapping[str, Mapping[str, float]]) -> Figure:
  """Draws a bar for each group, in parts."""
  figure = Figure(figsize=(9, 3), layout='constrained')
  axes = figure.subplots()
  starts = dict.fromkeys(groups, 0.0)
  for name in KINDS:
    widths = {group: parts[name] for group, parts in groups.items()}
    axes.barh(list(groups), list(widths.values()), left=list(starts.values()), label=name)
    starts = {group: start + widths[group] for group, start in starts.items()}
  axes.invert_yaxis()
  axes.set(title=title, xlabel='CPU microseconds a decision')
  axes.legend(ncols=2)
  return figure


def main(argv: list[str]) -> None:
  """Runs the program; prints the table and writes the results."""
  del argv
  perf = shutil.which('perf')
  if perf is None:
    raise ValueError('there is no perf; install the package linux-perf')
  config, flags = options.config(), options.launch_flags()
  learner = f'{roles.learns(config)}/0'
  with tempfile.TemporaryDirectory() as directory, end_to_end.running(flags, {}) as program:
    samples = os.path.join(directory, 'samples')
    program.wait_until(lambda: program.learner_steps() > 0, 'the first learner step')
    warm = time.monotonic() + options.WARM_UP.value
    program.wait_until(lambda: time.monotonic() >= warm, 'the end of warm-up')
    groups = {
      child.pid: re.sub(r'-\d+$', '', name)
      for name, node in end_to_end.all_nodes(program).items()
      for child in ([node] if name == 'launcher' else costs.family(node))
    }
    since = curves.read(program.run_dir, learner, 'seconds')[-1][0]
    record = [
      perf,
      'record',
      '--quiet',
      f'--freq={_HERTZ}',
      '--event=cpu-clock',
      '--output',
      samples,
    ]
    record += ['--pid', ','.join(map(str, groups)), '--', 'sleep', str(options.SECONDS.value)]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL)
    rate = _steps_per_second(program, learner, since)
    program.kill()
    script = [perf, 'script', '--input', samples, '--fields', 'pid,ip,sym,dso']
    found = counted(
      subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    )
  by_group: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
  for process, counts in found.items():
    by_group[groups.get(process, 'others')].update(counts)
  in_us = 1e6 / _HERTZ / options.SECONDS.value / rate
  groups_in_us = {
    group: {name: in_us * counts[name] for name in KINDS}
    for group, counts in sorted(by_group.items(), key=lambda item: -item[1].total())
  }
  columns = [*(name.replace(' ', '_') for name in KINDS), 'sum']
  table = output.Table(node='<20', **dict.fromkeys(columns, '>11.2f'))
  for group, parts in groups_in_us.items():
    table.add(group, *parts.values(), sum(parts.values()))
  total = [sum(parts[name] for parts in groups_in_us.values()) for name in KINDS]
  table.add('sum', *total, sum(total))
  print(f'\n{rate:,.0f} decisions/s; CPU microseconds a decision')
  name, env = options.program(), config.run.env
  file = output.file_name('microseconds', name, config)
  if user_file.is_spec(name):
    name, env = os.path.basename(os.path.dirname(name)), os.path.basename(env)
    file = f'microseconds-{name}'
  figure = draw(f'{name}, {env}: {rate:,.0f} decisions/s', groups_in_us)
  output.write(file, {'flags': flags, 'decisions_per_second': rate, 'groups': groups_in_us}, figure)


if __name__ == '__main__':
  options.run(main)
