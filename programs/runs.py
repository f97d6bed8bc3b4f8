"""New runs, from flags, and recorded runs, from their run directory."""

from __future__ import annotations

import dataclasses
from typing import Any

from environments import own_file
from programs import registry
from programs.options import agents, flags
from programs.options.configs import make_config, resolve
from rundir import run_directory


@dataclasses.dataclass(frozen=True)
class Run:
  """A program with its options.

  Attributes:
    program, module: the program's name and module.
    given: the options that the user set.
    config: every option, checked.
  """

  program: str
  module: Any
  given: dict[str, Any]
  config: Any


def new_run(program: str) -> Run:
  """Returns the run that the flags describe; its directory is not created yet.

  Raises:
    ValueError: if the flags do not fit together; one sentence.
  """
  program = own_file.absolute(program)
  module, given = registry.load(program), flags.given()
  return Run(program, module, given, make_config(module, given))


def recorded_run(path: str) -> Run:
  """Returns a run as it was last launched, for inspection; it may still be running.

  Raises:
    ValueError: if the directory does not hold a run of this version; one sentence.
  """
  record = run_directory.read_record(path)
  module = registry.load(record.program)
  try:
    agent = agents.recorded(module, record.config, {})
    config = resolve(module, record.config | agent)
  except (ValueError, TypeError) as error:
    raise ValueError(f'{path} is a run of another version of Launchpod: {error}') from error
  return Run(record.program, module, record.given, config)
