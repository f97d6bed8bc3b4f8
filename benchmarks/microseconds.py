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
from collections.abc import Iterable, Mapping

from matplotlib.figure import Figure

from benchmarks import end_to_end, options, output, roles
from environments import user_file

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
    end_to_end.wait_until_warm(program, options.WARM_UP.value)
    nodes = end_to_end.all_nodes(program)
    groups = {
      process.pid: end_to_end.group_of(name)
      for name, processes in end_to_end.processes(nodes).items()
      for process in processes
    }
    pids = ','.join(map(str, groups))
    begin = end_to_end.Instant(program, learner, nodes)
    subprocess.run(
      [
        *(perf, 'record', '--quiet', f'--freq={_HERTZ}', '--event=cpu-clock'),
        *('--output', samples, '--pid', pids, '--', 'sleep', str(options.SECONDS.value)),
      ],
      check=True,
      stdout=subprocess.DEVNULL,
    )
    end = end_to_end.Instant(program, learner, nodes)
    program.kill()
    script = [perf, 'script', '--input', samples, '--fields', 'pid,ip,sym,dso']
    found = counted(
      subprocess.run(script, check=True, capture_output=True, text=True).stdout.splitlines()
    )
  by_group: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
  for process, counts in found.items():
    by_group[groups.get(process, 'others')].update(counts)
  steps = end.counts['actor_steps'] - begin.counts['actor_steps']
  rate = steps / (end.second - begin.second)
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
