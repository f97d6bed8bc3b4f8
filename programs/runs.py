"""What is launched, from flags, and what has been, from the directory of a run."""

from __future__ import annotations

import dataclasses
from typing import Any

from environments import own_file
from programs import registry
from programs.options import flags
from programs.options.configs import make_config, resolve
from rundir import run_directory


@dataclasses.dataclass(frozen=True)
class Run:
  """What is to be launched.

  Attributes:
    program, module: its name and its module.
    given: the options that the user set.
    config: every option, checked.
  """

  program: str
  module: Any
  given: dict[str, Any]
  config: Any


def new_run(program: str) -> Run:
  """Returns what the flags say to run; its directory is not made yet.

  Raises:
    ValueError: if the flags do not fit together; one sentence.
  """
  program = own_file.absolute(program)
  module, given = registry.load(program), flags.given()
  return Run(program, module, given, make_config(module, given))


def recorded_run(path: str) -> Run:
  """Returns a run as it was launched last, to look at; it may still be going on.

  Raises:
    ValueError: if the directory is not that of a run of this version; one sentence.
  """
  record = run_directory.read_record(path)
  module = registry.load(record.program)
  try:
    config = resolve(module, dict(record.config))
  except (ValueError, TypeError) as error:
    raise ValueError(f'{path} is a run of another version of Launchpod: {error}') from error
  return Run(record.program, module, record.given, config)
