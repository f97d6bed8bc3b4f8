"""Flags of benchmarks that launch programs: the flags of launch.py, and measurement times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags

from environments import user_file
from programs import registry
from programs.options import configs, early
from programs.options import flags as config_flags
from viewing import output

SECONDS = flags.DEFINE_float(
  'seconds', 20.0, 'length of the measurement of a program', lower_bound=1.0
)
WARM_UP = flags.DEFINE_float(
  'warm_up', 10.0, 'seconds between the first learner steps and the measurement', lower_bound=0.0
)
STAGE_SECONDS = flags.DEFINE_float(
  'stage_seconds', 1.0, 'length of each timing of a stage alone', lower_bound=0.01
)
REPEATS = flags.DEFINE_integer('repeats', 3, 'number of measurements of each', lower_bound=1)


def run(
  main: Callable[[list[str]], None],
  check: Callable[[], Any] | None = None,
  programs: Sequence[str] = ('sebulba', 'r2d2'),
) -> None:
  """Runs a benchmark with program options as flags; exits with code 2 if they do not fit together.

  Args:
    main: main function of the benchmark.
    check: raises ValueError, one sentence, if the flags do not fit together; default: `config`.
    programs: values of --program, the default first, beside a user's own; if empty, the flag does not
      exist.
  """

  def checked(argv: list[str]) -> None:
    try:
      (check or config)()
    except ValueError as error:
      print(f'error: {error}', file=sys.stderr)
      sys.exit(2)
    sys.exit(output.run(lambda: measured(argv)))

  def measured(argv: list[str]) -> int:
    main(argv)
    return 0

  if programs:
    chosen, agent = early.choice(sys.argv, programs[0])
    values = dict.fromkeys([*programs, chosen] if user_file.is_spec(chosen) else programs)
    flags.DEFINE_enum('program', programs[0], list(values), 'program to measure')
    config_flags.define(chosen if chosen in values else programs[0], agent)
  else:
    config_flags.define()
  flags.adopt_module_key_flags(config_flags)
  app.run(checked, flags_parser=config_flags.parse_or_exit)


def program() -> str:
  """Returns the value of --program, which may be a flag of the module that imports a benchmark."""
  return flags.FLAGS.program


def config(
  defaults: Mapping[str, Any] | None = None, changes: Mapping[str, Any] | None = None
) -> Any:
  """Returns the resolved config of the program.

  Args:
    defaults: options by name that replace the program's own defaults.
    changes: options by name that override the user's flags.

  Raises:
    ValueError: the options do not fit together; one sentence.
  """
  values = {**(defaults or {}), **config_flags.given(), **(changes or {})}
  return configs.make_config(registry.load(program()), values)


def launch_flags(changes: Mapping[str, Any] | None = None) -> dict[str, str]:
  """Returns the user's flags, by name, to pass on to launch.py and `benchmarks.stages`.

  They hold the values of the preset's rules, which a run without an end would change.

  Args:
    changes: options by name that override the user's flags.
  """
  module, given = registry.load(program()), {**config_flags.given(), **(changes or {})}
  options_set_by_rules = configs.options_set_by_rules(module, configs.resolve(module, given))
  return as_flags(program(), {**options_set_by_rules, **given})


def as_flags(program: str, values: Mapping[str, Any]) -> dict[str, str]:
  """Returns launch.py flags, by name, that set a program's options to `values`."""
  return {'program': program} | {
    name: ','.join(map(str, v)) if isinstance(v, (list, tuple)) else str(v)
    for name, v in values.items()
  }
