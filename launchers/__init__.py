"""Where a graph runs. `launchers.launch` runs one from a `main` of your own."""

# Guards import this package without site packages, and machines of a Ray cluster without the others.
import os
from importlib import util
from typing import Any

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def launch(program: Any, *engine: Any, **options: Any) -> int:
  """Runs a Launchpad program to completion; see `launchers.calling.launch` for the arguments."""
  # The directory of the user's main precedes PYTHONPATH.
  for name in ('agents', 'courier', 'environments', 'nodes', 'programs', 'rundir'):
    found = util.find_spec(name)
    file = found.origin or '' if found else ''
    if os.path.dirname(os.path.dirname(file)) != _ROOT:
      raise ValueError(
        f'{file or name} hides the package {name} of Launchpod, which every node needs; rename it, or '
        f'put {_ROOT} before its directory in PYTHONPATH.'
      )
  from launchers import calling

  return calling.launch(program, *engine, **options)
