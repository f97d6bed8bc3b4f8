"""Config dataclasses whose fields declare help texts and value ranges."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

_LARGEST = 2**63 - 1


class Range(NamedTuple):
  """The allowed values of a number; None for no limit."""

  at_least: float | None = None
  at_most: float | None = None
  above: float | None = None
  below: float | None = None

  def __contains__(self, value: object) -> bool:
    assert isinstance(value, int | float)
    return (
      (self.at_least is None or value >= self.at_least)
      and (self.at_most is None or value <= self.at_most)
      and (self.above is None or value > self.above)
      and (self.below is None or value < self.below)
    )

  def __str__(self) -> str:
    """Returns the range in words, after 'set it to'."""
    if self.above is not None:
      lower = f'a number above {self.above}'
      return lower if self.at_most is None else f'{lower} and at most {self.at_most}'
    if self.below is not None:
      return f'a number from {self.at_least} to below {self.below}'
    if self.at_least is None:
      return f'{self.at_most} or less'
    if self.at_most is None:
      return f'{self.at_least} or more'
    return f'a number from {self.at_least} to {self.at_most}'


def option(
  default: Any,
  help: str,
  *,
  at_least: float | None = None,
  at_most: float | None = None,
  above: float | None = None,
  below: float | None = None,
) -> Any:
  """Returns a dataclass field with a default and the help text of the flag that sets it.

  Args:
    default: an int, float, bool, str or tuple of ints; its type is the flag's type.
    help: one sentence: the meaning, the unit, the paper's value where it differs.
    at_least: the smallest allowed value; None for no limit.
    at_most: the largest allowed value; None for no limit.
    above: every allowed value is larger; None for no limit.
    below: every allowed value is smaller; None for no limit.
  """
  allowed = Range(at_least, at_most, above, below)
  metadata = {'help': help, 'allowed': allowed}
  return dataclasses.field(default=default, metadata=metadata)


def with_default(config: type, name: str, default: Any) -> Any:
  """Returns a dataclass field like an inherited one, with another default.

  Args:
    config: a class that has the option.
    name: of the option.
    default: as in `option`.
  """
  (field,) = (field for field in dataclasses.fields(config) if field.name == name)
  return dataclasses.field(default=default, metadata=field.metadata)


class CheckedOptions:
  """A config dataclass in which each class of the MRO checks its own options in `_check`."""

  def validate(self) -> None:
    """Checks the range of every number, then calls the `_check` of each class, base classes first.

    A class with options defines `_check(self) -> None`, without calling `super()`.

    Raises:
      ValueError: one sentence that names the flag and the fix.
    """
    check_numbers(self)
    for cls in reversed(type(self).__mro__):
      if '_check' in vars(cls):
        vars(cls)['_check'](self)


def check_numbers(config: Any) -> None:
  """Checks the range of every number of a config dataclass.

  An int must fit in 64 bits. A float must be finite unless its default is not. A number must be in the
  range that its field sets.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  for field in dataclasses.fields(config):
    value = getattr(config, field.name)
    if isinstance(value, bool) or not isinstance(value, int | float):
      continue
    said = f'--{field.name} is {value!r}: set it to'
    if isinstance(value, int):
      if abs(value) > _LARGEST:
        raise ValueError(f'--{field.name} has more than 64 bits: set it to {_LARGEST} or less.')
    elif not math.isfinite(value) and not _is_infinite(field.default):
      raise ValueError(f'{said} a finite number.')
    allowed = field.metadata.get('allowed')
    if allowed is not None and value not in allowed:
      raise ValueError(f'{said} {allowed}.')


def _is_infinite(default: Any) -> bool:
  return isinstance(default, float) and not math.isfinite(default)
