"""What has to hold in a drill."""

from __future__ import annotations

from typing import NamedTuple


class Refused(ValueError):
  """A drill that this system does not allow; one sentence."""


class Check(NamedTuple):
  """A sentence, and whether it holds."""

  holds: bool
  sentence: str

  def __str__(self) -> str:
    return f'- {"holds" if self.holds else "FAILS"}: {self.sentence}'


class Checks:
  """What a drill has found so far; says each as it comes."""

  def __init__(self) -> None:
    self.all: list[Check] = []

  def add(self, holds: bool, sentence: str) -> None:
    """Adds a sentence and prints it."""
    self.all.append(Check(bool(holds), sentence))
    print(self.all[-1], flush=True)

  def hold(self) -> bool:
    """Returns whether there are any and all of them hold."""
    return bool(self.all) and all(check.holds for check in self.all)
