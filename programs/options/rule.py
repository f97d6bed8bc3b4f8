"""A value of a preset that follows from the run's other options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Rule:
  """A value that a preset computes. It is a function of the options alone, so a run can be repeated.

  Attributes:
    text: the rule in a few words, as `launch.py --presets` prints it.
    value: takes the resolved config and returns the option's value. The config has the preset's plain
      values, the user's flags, and the values of the rules before this one. `cpu_cores` is the number
      of cores of the machine. Each number is in its range, but the options may not fit together.
  """

  text: str
  value: Callable[[Any], Any]
