"""Output of a benchmark: a table on the terminal, a JSON file and a plot."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from typing import Any

from absl import flags
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from agents import options

RESULTS = flags.DEFINE_string('results', 'runs/benchmarks', 'directory of the results')


def cores() -> int:
  """Returns the number of CPU cores that this process may use."""
  return len(os.sched_getaffinity(0))


def machine() -> dict[str, Any]:
  """Returns the properties of the machine that affect the measurements, by name."""
  return {
    'cpu_cores': cores(),
    'python': platform.python_version(),
    'jax': importlib.metadata.version('jax'),
  }


class Table:
  """A table that prints each row when it is added."""

  def __init__(self, **columns: str):
    """Prints the header.

    Args:
      **columns: formats such as '<20' or '>10,.1f', by title; `_` in a title is printed as a space.
    """
    self._formats = list(columns.values())
    widths = [spec.split(',')[0].split('.')[0] for spec in self._formats]
    self._print(
      f'{title.replace("_", " "):{width}}' for title, width in zip(columns, widths, strict=True)
    )

  def add(self, *cells: Any) -> None:
    """Prints a row; None is shown as '-'."""
    shown = []
    for cell, spec in zip(cells, self._formats, strict=True):
      missing = cell is None
      shown.append(
        f'{"-" if missing else cell:{spec.split(",")[0].split(".")[0] if missing else spec}}'
      )
    self._print(shown)

  def _print(self, cells: Any) -> None:
    print(' '.join(cells).rstrip(), flush=True)


def file_name(benchmark: str, program: str, config: Any) -> str:
  """Returns a file name without suffix for the results, such as 'startup-r2d2-cartpole'."""
  core = options.value(config, 'core', 'none')
  parts = [benchmark, program, config.run.env, *([core] if core != 'none' else [])]
  return re.sub(r'[^\w.]+', '-', '-'.join(parts))


def write(name: str, record: dict[str, Any], figure: Figure) -> None:
  """Writes `name`.json (record and machine) and `name`.png to --results; prints their names."""
  os.makedirs(RESULTS.value, exist_ok=True)
  with open(os.path.join(RESULTS.value, f'{name}.json'), 'w') as f:
    json.dump({**machine(), **record}, f, indent=2)
  FigureCanvasAgg(figure).print_png(os.path.join(RESULTS.value, f'{name}.png'))
  print(f'wrote {name}.json and {name}.png to {RESULTS.value}')
