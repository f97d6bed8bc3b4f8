"""Where a graph runs. `launchers.launch` runs one from a `main` of your own."""

# Guards import this package without site packages, and machines of a Ray cluster without the others.
from typing import Any


def launch(program: Any, **options: Any) -> int:
  """Runs a Launchpad program to completion; see `launchers.calling.launch` for the arguments."""
  from launchers import calling

  return calling.launch(program, **options)
