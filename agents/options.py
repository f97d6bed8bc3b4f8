"""Config dataclasses whose fields document themselves."""

from __future__ import annotations

import dataclasses
from typing import Any


def option(default: Any, help: str) -> Any:
  """Returns a dataclass field with a default and the help text of the flag that sets it.

  Args:
    default: an int, float, bool, str or tuple of ints; its type is the flag's type.
    help: one sentence: what it is, its unit, the paper's value where it differs.
  """
  return dataclasses.field(default=default, metadata={'help': help})
