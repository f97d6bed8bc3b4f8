"""Builds the graph of a run again, in a process that may have no flags."""

from __future__ import annotations

from typing import Any

import launchpad as lp

from agents import options
from programs import registry


def remake(name: str, config: Any, resumes: int) -> tuple[lp.Program, Any]:
  """Returns the graph of a run that is resumed, and its options by name.

  Args:
    name: of its program, as of --program.
    config: its options when it was launched.
    resumes: how often it has been resumed, which gives its actors new seeds.

  Raises:
    ValueError: if a file of the user's with the program is not here; one sentence.
  """
  config = options.replace(config, resumes=resumes)
  return registry.load(name).make_program(config), options.flatten(config)
