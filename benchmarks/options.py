"""The flags of benchmarks that launch programs: those of launch.py, and how long to measure."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags

from programs import registry
from programs.options import configs
from programs.options import flags as config_flags

SECONDS = flags.DEFINE_float('seconds', 20.0, 'that a program is measured for', lower_bound=1.0)
WARM_UP = flags.DEFINE_float(
  'warm_up', 10.0, 'seconds between the first learner steps and the measurement', lower_bound=0.0
)
STAGE_SECONDS = flags.DEFINE_float(
  'stage_seconds', 1.0, 'of each timing of a stage alone', lower_bound=0.01
)
REPEATS = flags.DEFINE_integer('repeats', 3, 'how often each is measured', lower_bound=1)


def run(
  main: Callable[[list[str]], None],
  check: Callable[[], Any] | None = None,
  programs: Sequence[str] = ('sebulba', 'r2d2'),
) -> None:
  """Runs a benchmark with the options of programs as flags; ends with code 2 if they do not fit.

  Args:
    main: of the benchmark.
    check: raises ValueError, one sentence, if they do not fit; by default, as `config`.
    programs: between which --program chooses, the first by default; none: there is no such flag.
  """

  def checked(argv: list[str]) -> None:
    try:
      (check or config)()
    except ValueError as error:
      print(f'error: {error}', file=sys.stderr)
      sys.exit(2)
    main(argv)

  # What it has started is to end with it.
  signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
  if programs:
    flags.DEFINE_enum('program', programs[0], programs, 'what to measure')
  config_flags.define()
  flags.adopt_module_key_flags(config_flags)
  app.run(checked)


def program() -> str:
  """Returns the name of the program. (Who imports a benchmark may have a flag of that name.)"""
  return flags.FLAGS.program


def config(
  defaults: Mapping[str, Any] | None = None, changes: Mapping[str, Any] | None = None
) -> Any:
  """Returns the config of the program, resolved.

  Args:
    defaults: options by name, in place of the program's own where the user has not set them.
    changes: options by name, in place of what the user has set.

  Raises:
    ValueError: if the options do not fit together; one sentence.
  """
  values = {**(defaults or {}), **config_flags.given(), **(changes or {})}
  return configs.make_config(registry.load(program()), values)


def launch_flags(changes: Mapping[str, Any] | None = None) -> dict[str, str]:
  """Returns what to give launch.py, and `benchmarks.stages`: what was given here, by name.

  Args:
    changes: options by name, in place of what the user has set.
  """
  return as_flags(program(), {**config_flags.given(), **(changes or {})})


def as_flags(program: str, values: Mapping[str, Any]) -> dict[str, str]:
  """Returns the flags for launch.py, by name, that give a program these options."""
  return {'program': program} | {
    name: ','.join(map(str, v)) if isinstance(v, (list, tuple)) else str(v)
    for name, v in values.items()
  }
