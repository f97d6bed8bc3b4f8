"""The flags of benchmarks that launch programs: those of launch.py, and how long to measure."""

from __future__ import annotations

from typing import Any

from absl import flags

from programs import registry
from programs.options import configs
from programs.options import flags as config_flags

PROGRAM = flags.DEFINE_string('program', 'sebulba', 'what to measure: sebulba or r2d2')
SECONDS = flags.DEFINE_float('seconds', 20.0, 'that a program is measured for', lower_bound=1.0)
WARM_UP = flags.DEFINE_float(
  'warm_up', 10.0, 'seconds between the first learner steps and the measurement', lower_bound=0.0
)
STAGE_SECONDS = flags.DEFINE_float(
  'stage_seconds', 1.0, 'of each timing of a stage alone', lower_bound=0.01
)
REPEATS = flags.DEFINE_integer('repeats', 3, 'how often each is measured', lower_bound=1)


def define() -> None:
  """Defines the options of programs as flags; call it before the flags are parsed."""
  config_flags.define()
  flags.adopt_module_key_flags(config_flags)


def config(**defaults: Any) -> Any:
  """Returns the config of the program, resolved.

  Args:
    **defaults: options that are not to be the program's own where the user has not set them.

  Raises:
    ValueError: if the flags do not fit together; one sentence.
  """
  return configs.make_config(registry.load(PROGRAM.value), defaults | config_flags.given())


def launch_flags() -> dict[str, str]:
  """Returns what to give launch.py, and `benchmarks.stages`: what was given here, by name."""
  return {'program': PROGRAM.value} | {
    name: ','.join(map(str, v)) if isinstance(v, (list, tuple)) else str(v)
    for name, v in config_flags.given().items()
  }
