"""Runs sections of a benchmark one after the other within a budget of seconds for all of them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.peers import tree
from rundir import files

# Between the time that a section is told and its kill, for what it launched to end, and for its record.
GRACE_SECONDS = 8.0
_ENDED_SECONDS = 2.0
_ERROR_CHARACTERS = 2000


def run(
  weights: Mapping[str, float],
  budget: float,
  command: Callable[[str, float, str], Sequence[str]],
  directory: str,
  record: dict[str, Any],
  path: str,
) -> dict[str, Any]:
  """Runs every section in a process of its own, and writes `record` after each.

  A section may take its weight's share of the seconds that are left, so what one does not use goes to
  the later ones. At the end of its share it is killed with all its descendants.

  Args:
    weights: sections in order, with their weights.
    budget: seconds for all sections.
    command: returns the command of a section, from its name, the seconds in which it should end by
      itself, and the file where it writes its results, a JSON object, as often as it has one.
    directory: an existing directory for the files and the outputs of the sections.
    record: what the file has beside the sections.
    path: the JSON file.

  Returns:
    `record` with `sections`, by name: the seconds it took and its `share_seconds`; `ended`: 'complete',
    'by its share', 'skipped' or 'failed'; the `reason` or the `error`, if there is one; its `results`.
  """
  end = time.monotonic() + budget
  record = {**record, 'budget_seconds': budget, 'sections': {}}
  left = dict(weights)
  for name in weights:
    share = max(end - time.monotonic(), 0.0) * left[name] / sum(left.values())
    del left[name]
    print(f'{name}: at most {share:.0f} s', flush=True)
    section = _section(name, share, command, directory)
    record['sections'][name] = section
    record['seconds'] = budget - (end - time.monotonic())
    files.write_json(path, record)
    print(f'{name}: {section["ended"]} after {section["seconds"]:.0f} s', flush=True)
    for key in ('reason', 'error'):
      if key in section:
        print(f'  {section[key].strip().splitlines()[-1]}', flush=True)
    for key, value in section['results'].items():
      print(f'  {key}: {json.dumps(value)}', flush=True)
  return record


def _section(
  name: str, share: float, command: Callable[[str, float, str], Sequence[str]], directory: str
) -> dict[str, Any]:
  """Runs a section for at most `share` seconds; returns its part of the record."""
  started = time.monotonic()
  results, log = (os.path.join(directory, f'{name}.{ending}') for ending in ('json', 'log'))
  stated = max(share - GRACE_SECONDS, share / 2)
  with open(log, 'w') as out, tree.killed_at_the_end() as processes:
    process = subprocess.Popen(
      command(name, stated, results),
      env=os.environ | processes.variables,
      stdin=subprocess.DEVNULL,
      stdout=out,
      stderr=out,
      start_new_session=True,
    )
    try:
      code = process.wait(max(share - _ENDED_SECONDS, share / 2))
    except subprocess.TimeoutExpired:
      code = None
  found = _read(results)
  section: dict[str, Any] = {'share_seconds': share, 'seconds': time.monotonic() - started}
  cut = found.pop('cut', False)
  if code is None or cut:
    section['ended'] = 'by its share'
  elif 'skipped' in found:
    section |= {'ended': 'skipped', 'reason': found.pop('skipped')}
  elif code:
    with open(log, errors='replace') as f:
      section |= {'ended': 'failed', 'error': f.read()[-_ERROR_CHARACTERS:] or f'exit code {code}'}
  else:
    section['ended'] = 'complete'
  return section | {'results': found}


def _read(path: str) -> dict[str, Any]:
  """Returns the object in a JSON file; {} if there is none."""
  try:
    with open(path) as f:
      return json.load(f)
  except FileNotFoundError:
    return {}
