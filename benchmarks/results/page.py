"""The page of results and its figures, made from nothing but what is declared and recorded."""

from __future__ import annotations

import glob
import json
import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.results import cells, measures, records
from benchmarks.results.declared import Entry, Group, Peer, Task
from benchmarks.results.places import Places
from benchmarks.results.records import Record
from sweeps import bootstrap, figures
from sweeps.cells import NONE, estimate, number, table

_INTRODUCTION = """\
# Results

`python -m benchmarks.results` writes this page from the runs that it has made;
[Benchmarks](../benchmarks/README.md#results-of-learning) describes the command. Do not edit it.

- **Return** is the mean raw return of the final parameters, which `evaluate.py` plays on whole episodes.
  It is a mean over seeds. In brackets stands its 95% interval by stratified bootstrap over the seeds.
  With three seeds that interval is their range, which covers less than 95%.
- **Frames to** and **seconds to** a return are those of the first evaluation in training with that mean,
  if the next one, where there is one, has it too. Some evaluations have as few as ten episodes. Later
  ones may be lower. They are medians and ranges over the seeds that reached it. Seconds are wall time
  from the command, start-up and compilation included. After ≤ they are bounds: a seed reached it in its
  last evaluation only, and the one before has less than half of those frames.
- A run ends with the batch that reaches its budget, so PPO has more steps than the command names.
- **Steps/s** are decisions per second between the first and the last report of training.
- **Load** is the machine's load average before the runs; a busy machine makes times longer.
- **JAX** is the version of JAX. Rows of ours with 0.6.2 were made on Python 3.10 and Reverb 0.7.2, those
  with a later one on Python 3.12 and Reverb 0.14.
- **Commit** is the version of this repository; + marks a working tree with changes. A note names options
  in which the seeds of a row differ. Older records have no options, so rows of several commits without a
  note may mix the defaults of these.
- A driver runs the peers. Their curves are training returns; figures show them dashed.
- *Published* figures are quoted. Their protocols differ from ours in what their notes say.
"""


class Recorded:
  """The records of all rows, and the machines that made them."""

  def __init__(self, tasks: Sequence[Task], places: Places):
    """Reads the records.

    Raises:
      ValueError: a record cannot be read; one sentence.
    """
    entries = [Entry(task, row) for task in tasks for row in task.rows]
    self._by_name = {entry.name: records.of_row(entry, places) for entry in entries}
    self._machines: dict[str, str] = {}
    for by_seed in self._by_name.values():
      for record in by_seed.values():
        for attempt in record.attempts:
          key = json.dumps(attempt['machine'], sort_keys=True)
          self._machines.setdefault(key, chr(ord('A') + len(self._machines)))

  def of(self, entry: Entry) -> dict[int, Record]:
    """Returns the records of a row by seed."""
    return self._by_name[entry.name]

  def machines(self) -> list[tuple[str, dict[str, Any]]]:
    """Returns the machines with their letters."""
    return [(letter, json.loads(key)) for key, letter in self._machines.items()]

  def letters(self, found: Sequence[Record]) -> str:
    """Returns the letters of the machines of some runs."""
    keys = (json.dumps(a['machine'], sort_keys=True) for r in found for a in r.attempts)
    return ', '.join(sorted({self._machines[key] for key in keys})) or NONE


def render(tasks: Sequence[Task], groups: Sequence[Group], places: Places) -> dict[str, bytes]:
  """Returns the content of the page and of each figure, by path.

  Raises:
    ValueError: a record cannot be read; one sentence.
  """
  recorded = Recorded(tasks, places)
  drawn: dict[str, bytes] = {}
  lines = [_INTRODUCTION]
  by_name = {group.name: group for group in groups}
  sections = dict.fromkeys(task.group or task.name for task in tasks)
  for section in sections:
    members = [task for task in tasks if section in (task.group, task.name)]
    if section in by_name:
      group = by_name[section]
      lines += [f'## {group.title}', '', group.about, '', *_mean_of(members, recorded)]
    for task in members:
      figure = _figure(task, recorded)
      if figure is not None:
        drawn[places.figure(task.name)] = figure
      lines += _task(task, recorded, places.figure(task.name) if figure is not None else '', places)
  lines += _machines(recorded)
  return {places.page: ('\n'.join(lines).rstrip() + '\n').encode(), **drawn}


def write(content: Mapping[str, bytes], places: Places) -> None:
  """Writes the page and its figures; removes figures that are no longer part of it."""
  for old in glob.glob(os.path.join(glob.escape(os.path.dirname(places.figure('x'))), '*.svg')):
    if old not in content:
      os.remove(old)
  for path, text in content.items():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as f:
      f.write(text)


def _task(task: Task, recorded: Recorded, figure: str, places: Places) -> list[str]:
  lines = [f'{"###" if task.group else "##"} {task.title}', '', task.about, '']
  if figure:
    path = posixpath.join(*os.path.relpath(figure, places.docs).split(os.sep))
    lines += [f'![Learning curves of {task.title}]({path})', '']
  header = ['system', task.measure, 'seeds']
  for threshold in task.thresholds:
    header += [f'frames to {number(threshold)}', f'seconds to {number(threshold)}']
  header += ['steps/s', 'load', 'machine', 'JAX', 'commit']
  rows = [_row(Entry(task, row), recorded) for row in task.rows]
  for published in task.published:
    quoted = [f'{published.system}, *published*', published.figure or NONE]
    rows.append(quoted + [NONE] * (len(header) - len(quoted)))
  lines += table(header, rows)
  if notes := _notes(task, recorded):
    lines += [*notes, '']
  if any(recorded.of(Entry(task, row)) for row in task.rows):
    path = f'data/{task.name}.json'
    lines += [f'Records of the runs: [{path}]({path})', '']
  if task.missed:
    lines += [f'**Missed:** {task.missed}', '']
  commands = [row.shown_command(f'{task.name}/{row.label}') for row in task.rows]
  return [*lines, '```', *(f'.venv/bin/python {command}' for command in commands), '```', '']


def _row(entry: Entry, recorded: Recorded) -> list[str]:
  by_seed = recorded.of(entry)
  found = list(by_seed.values())
  label = f'{entry.row.label} (peer)' if isinstance(entry.row, Peer) else f'`{entry.row.label}`'
  line = [label, cells.final_return(found), cells.seeds(entry, by_seed)]
  for threshold in entry.task.thresholds:
    line += cells.to_threshold(found, threshold)
  return [
    *line,
    cells.rate(found),
    cells.load(found),
    recorded.letters(found),
    cells.jax_versions(found),
    cells.commits(found),
  ]


def _notes(task: Task, recorded: Recorded) -> list[str]:
  """Returns a line for each protocol of the final returns, row of unlike seeds, and published figure."""
  labels: dict[str, list[str]] = {}
  for row in task.rows:
    for record in recorded.of(Entry(task, row)).values():
      names = labels.setdefault(record.final['protocol'], [])
      if row.label not in names:
        names.append(row.label)
  ours = [f'- {", ".join(names)}: {protocol}.' for protocol, names in labels.items()]
  for row in task.rows:
    entry = Entry(task, row)
    more = _by_id(entry, recorded), _of_members(entry, recorded), _differences(entry, recorded)
    ours += [line for line in more if line]
  quoted = [f'- {p.system}: {p.protocol}. Source: {p.source}.' for p in task.published]
  return ours + quoted


def _by_id(entry: Entry, recorded: Recorded) -> str:
  """Returns a line with the mean return of each id of bsuite, the mean over the seeds; '' for others."""
  found = [r.final.get('mean_return_by_id') or {} for r in recorded.of(entry).values()]
  returns = (
    [number(float(np.mean([by_id[i] for by_id in found]))) for i in found[0]] if found else []
  )
  return (
    f'- {entry.row.label}: mean training return by id: {", ".join(returns)}.' if returns else ''
  )


def _of_members(entry: Entry, recorded: Recorded) -> str:
  """Returns a line with the last scores of the members of a population; '' for others."""
  said = []
  for seed, record in recorded.of(entry).items():
    if scores := record.final.get('member_scores'):
      mean, worst = number(float(np.mean(scores))), number(min(scores))
      said.append(f'seed {seed}: mean {mean}, worst {worst} of {len(scores)}')
  return f'- {entry.row.label}: last scores of the members: {"; ".join(said)}.' if said else ''


def _differences(entry: Entry, recorded: Recorded) -> str:
  """Returns a line with the options that differ between the seeds of a row; '' if none are known to."""
  found = recorded.of(entry)
  options = {s: r.options for s, r in found.items() if r.options is not None}
  differ = []
  for name in sorted(set().union(*options.values())):
    values = {seed: of_seed.get(name) for seed, of_seed in options.items()}
    if len({json.dumps(value) for value in values.values()}) > 1:
      shown = ', '.join(f'seed {seed}: {value}' for seed, value in values.items())
      differ.append(f'{name} ({shown})')
  said = [f'the seeds differ in {"; ".join(differ)}'] if differ else []
  unknown = [str(seed) for seed in found if seed not in options]
  if options and unknown:
    said.append(
      f'the options of seed{"s" if len(unknown) > 1 else ""} {", ".join(unknown)} are not recorded'
    )
  return f'- {entry.row.label}: {"; ".join(said)}.' if said else ''


def _figure(task: Task, recorded: Recorded) -> bytes | None:
  lines = []
  for colour, row in enumerate(task.rows):
    found = list(recorded.of(Entry(task, row)).values())
    band = measures.band([record.curve for record in found])
    if band is not None:
      seeds = f'{len(found)} seed{"s" if len(found) > 1 else ""}'
      lines.append(figures.Line(f'{row.label}, {seeds}', colour, isinstance(row, Peer), band))
  return figures.draw(task.title, lines, task.thresholds) if lines else None


def _mean_of(members: Sequence[Task], recorded: Recorded) -> list[str]:
  """Returns the table of the interquartile means over the tasks of a group that have a scale."""
  scaled = [task for task in members if task.scale is not None]
  rows = []
  for label in dict.fromkeys(row.label for task in scaled for row in task.rows):
    declared = [Entry(t, row) for t in scaled for row in t.rows if row.label == label]
    strata = []
    for entry in declared:
      low, high = entry.task.scale or (0.0, 1.0)
      returns = np.array([r.final['mean'] for r in recorded.of(entry).values()])
      strata.append((returns - low) / (high - low))
    numbers = ', '.join(f'{e.task.title} {len(s)}' for e, s in zip(declared, strata, strict=True))
    missing = [e.task.title for e, s in zip(declared, strata, strict=True) if not len(s)]
    single = [e.task.title for e, s in zip(declared, strata, strict=True) if len(s) == 1]
    value = cells.NOT_RUN
    if not missing and len(set(map(len, strata))) > 1:
      value = f'none yet: unequal numbers of seeds, {numbers}'
    elif not missing:
      value = estimate(
        bootstrap.estimate(strata, bootstrap.interquartile_mean),
        f'no interval: {", ".join(single)} with one seed',
      )
    elif len(missing) < len(declared):
      value = f'{cells.NOT_RUN} on {", ".join(missing)}'
    runs = sum(map(len, strata))
    rows.append([label, value, ', '.join(entry.task.title for entry in declared), str(runs)])
  if not rows:
    return []
  header = ['system', 'interquartile mean of scaled returns (95% interval)', 'tasks', 'runs']
  return table(header, rows)


def _machines(recorded: Recorded) -> list[str]:
  rows = [
    [
      letter,
      str(machine['cpu']),
      str(machine['cpu_cores']),
      f'{machine["memory_gib"]} GiB',
      ', '.join(machine['accelerators']) or 'none',
    ]
    for letter, machine in recorded.machines()
  ]
  if not rows:
    return []
  header = ['machine', 'processor', 'cores', 'memory', 'accelerators']
  return ['## Machines', '', *table(header, rows)]
