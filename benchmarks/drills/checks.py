"""Checks of a drill."""

from __future__ import annotations

from typing import NamedTuple


class Refused(ValueError):
  """Raised if this system does not allow a drill; one sentence."""


class Check(NamedTuple):
  """A statement, and whether it holds."""

  holds: bool
  sentence: str

  def __str__(self) -> str:
    return f'- {"holds" if self.holds else "FAILS"}: {self.sentence}'


class Checks:
  """The checks of a drill so far; prints each when it is added."""

  def __init__(self) -> None:
    self.all: list[Check] = []

  def add(self, holds: bool, sentence: str) -> None:
    """Adds a check and prints it."""
    self.all.append(Check(bool(holds), sentence))
    print(self.all[-1], flush=True)

  def hold(self) -> bool:
    """Returns whether there is at least one check and all hold."""
    return bool(self.all) and all(check.holds for check in self.all)
