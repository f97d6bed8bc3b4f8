"""Options whose flag also takes `auto`: `programs.sizes` measures them before a run starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

AUTO = 'auto'


def asked(config_class: Any, values: Mapping[str, Any]) -> list[str]:
  """Returns the options of a config class that are to be measured, in its order.

  Args:
    config_class: a dataclass of `agents.options.option`.
    values: flag name to value.
  """
  fields = dataclasses.fields(config_class)
  return [f.name for f in fields if f.metadata.get('measured') and values.get(f.name) == AUTO]


def refuse(config_class: Any, values: Mapping[str, Any]) -> None:
  """Raises ValueError, one sentence, for the first option that is still to be measured."""
  for name in asked(config_class, values):
    raise ValueError(
      f'--{name}=auto is measured before a single run on this machine, and nothing is measured here; '
      f'give a number, such as the one of launch.py --{name}=auto --dry_run.'
    )
