"""The options of an engine: fields of its dataclass, each of which is a flag of launch.py too."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from absl import flags

LONGEST_SECONDS = 1e7  # Of a timeout.
# What defines a flag, by the type of its default; a tuple is a list of texts.
DEFINE: Mapping[type, Callable[..., Any]] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
  tuple: flags.DEFINE_list,
}


class Option(NamedTuple):
  """What a field says about its flag.

  Attributes:
    flag: its name.
    default: its default, and that of the field.
    help: its help text.
    kind: bool, int, float, str, or tuple for a list of texts.
    at_least: the smallest number; None for no limit.
    at_most: the largest number; None for no limit.
    choices: the only texts; empty for any.
  """

  flag: str
  default: Any
  help: str
  kind: type
  at_least: float | None = None
  at_most: float | None = None
  choices: Sequence[str] = ()

  def problem(self, value: Any) -> str:
    """Returns what a value must be instead of what it is; '' if it can be taken."""
    if value is None and self.default is None:
      return ''
    kinds: Any = {float: (int, float), tuple: (tuple, list)}.get(self.kind, self.kind)
    if not isinstance(value, kinds) or (isinstance(value, bool) and self.kind is not bool):
      return f'of type {self.kind.__name__}'
    if self.choices and value not in self.choices:
      return f'one of {", ".join(self.choices)}'
    if self.kind is float and not math.isfinite(value):
      return 'a finite number'
    if self.at_least is not None and value < self.at_least:
      return f'at least {self.at_least:g}'
    if self.at_most is not None and value > self.at_most:
      return f'at most {self.at_most:g}'
    return ''


def option(
  default: Any,
  help: str,
  *,
  flag: str,
  kind: type | None = None,
  at_least: float | None = None,
  at_most: float | None = None,
  choices: Sequence[str] = (),
) -> Any:
  """Returns a field of an engine; its flag has the same default.

  Args:
    default: its default, whose type is that of the option.
    help: the help text of the flag.
    flag: the name of the flag.
    kind: the type of the option if its default is None.
    at_least: see `Option`, as are the rest.
    at_most: see `Option`.
    choices: see `Option`.
  """
  said = Option(flag, default, help, kind or type(default), at_least, at_most, choices)
  return dataclasses.field(default=default, metadata={'option': said})


def of(engine: Any) -> dict[str, Option]:
  """Returns the options of an engine, or of its class, by the names of their fields."""
  return {field.name: field.metadata['option'] for field in dataclasses.fields(engine)}


def check(engine: Any) -> None:
  """Raises ValueError, one sentence that names the flag, for a value that an option cannot have."""
  for name, option in of(engine).items():
    value = getattr(engine, name)
    if wanted := option.problem(value):
      raise ValueError(f'--{option.flag}={value!r} must be {wanted}.')
