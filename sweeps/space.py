"""The space of a sweep: for each flag the values that trials may give it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from programs.options import config_file

Value = str | int | float
_FORMS = (
  'it needs a list of values, {range: [LOW, HIGH]}, {log_range: [LOW, HIGH]} or {choices: [...]}'
)
_DIGITS = 4  # Significant digits of a drawn number.
_MOST = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Choices:
  """A flag with some values, as texts."""

  values: tuple[str, ...]

  def draw(self, rng: np.random.Generator) -> Value:
    """Returns a value, each with the same probability."""
    return self.values[int(rng.integers(len(self.values)))]

  @property
  def examples(self) -> tuple[Value, ...]:
    """Values with which all of them can be checked."""
    return self.values


@dataclasses.dataclass(frozen=True)
class Range:
  """A flag with numbers from `low` to `high`, both included.

  Attributes:
    low, high: the ends.
    log: whether the logarithm is uniform.
    whole: whether the numbers are whole.
  """

  low: float
  high: float
  log: bool
  whole: bool

  def draw(self, rng: np.random.Generator) -> Value:
    """Returns a number; a float has four significant digits."""
    low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
    if self.log:
      drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
      drawn = rng.uniform(low, high)
    return self.rounded(drawn)

  def rounded(self, drawn: float) -> Value:
    """Returns a number of the range as a flag gets it: whole, or with four significant digits."""
    inside = min(max(float(f'{drawn:.{_DIGITS}g}'), self.low), self.high)
    return int(min(max(round(drawn), self.low), self.high)) if self.whole else inside

  @property
  def examples(self) -> tuple[Value, ...]:
    """Values with which all of them can be checked."""
    return self.rounded(self.low), self.rounded(self.high)


Axis = Choices | Range


def parse(found: Mapping[str, Any], source: str) -> dict[str, Axis]:
  """Returns the axes of a space; all flags have to be defined.

  Args:
    found: flag name to its values, as in YAML.
    source: begins the error messages, such as 'sweep.yaml: space'.

  Raises:
    ValueError: the space is empty, or a flag or one of its values is invalid; one sentence.
  """
  if not isinstance(found, Mapping) or not found:
    raise ValueError(
      f'{source} is empty; give at least one flag with its values, as in '
      '"learning_rate: [1e-4, 1e-3]", or use launch.py --seeds for seeds alone.'
    )
  return {str(name): _axis(str(name), values, source) for name, values in found.items()}


def _axis(name: str, values: Any, source: str) -> Axis:
  if isinstance(values, Mapping) and len(values) == 1:
    ((kind, values),) = values.items()
    if kind in ('range', 'log_range'):
      return _range(name, values, kind, source)
    if kind != 'choices':
      raise ValueError(f'{source}: {name}: {kind!r} is not a kind of values; {_FORMS}.')
  if not isinstance(values, list):
    raise ValueError(f'{source}: {name} is {values!r}; {_FORMS}.')
  if not values:
    raise ValueError(f'{source}: {name} has no values; give at least one, or leave it out.')
  texts = [config_file.word(source, name, value).partition('=')[2] for value in values]
  parsed = list(map(flags.FLAGS[name].parser.parse, texts))
  for text, value in zip(texts, parsed, strict=True):
    if parsed.count(value) > 1:
      raise ValueError(f'{source}: {name} has {text} twice; remove one.')
  return Choices(tuple(texts))


def _range(name: str, ends: Any, kind: str, source: str) -> Range:
  source_of_ends = f'{source}: {name}: {kind}'
  if not isinstance(ends, list) or len(ends) != 2:
    raise ValueError(f'{source_of_ends} is {ends!r}; give [LOW, HIGH].')
  words = [config_file.word(source, name, end) for end in ends]
  known: Any = flags.FLAGS[name]
  if known.flag_type() not in ('int', 'float'):
    raise ValueError(f'{source}: {name} takes no numbers; give a list of values.')
  low, high = (known.parser.parse(word.partition('=')[2]) for word in words)
  if max(abs(low), abs(high)) > _MOST and known.flag_type() == 'int':
    raise ValueError(f'{source_of_ends} has a number of more than 64 bits; make it smaller.')
  if not (math.isfinite(low) and math.isfinite(high) and low < high):
    raise ValueError(f'{source_of_ends} is [{low}, {high}]; LOW must be below HIGH, both finite.')
  if kind == 'log_range' and low <= 0:
    raise ValueError(f'{source_of_ends} begins at {low}; it must begin above 0, or be a range.')
  return Range(low, high, kind == 'log_range', known.flag_type() == 'int')


def grid(axes: Mapping[str, Axis], source: str) -> list[dict[str, Value]]:
  """Returns every combination; the values of the last flag change first.

  Args:
    axes: by flag name.
    source: begins the error messages.

  Raises:
    ValueError: an axis is a range; one sentence.
  """
  lists = []
  for name, axis in axes.items():
    if isinstance(axis, Range):
      raise ValueError(
        f'{source}: {name} is a range, which a grid cannot cover; list its values, or add '
        '"search: random".'
      )
    lists.append(axis.values)
  return [dict(zip(axes, values, strict=True)) for values in itertools.product(*lists)]


def draws(axes: Mapping[str, Axis], trials: int, seed: int) -> list[dict[str, Value]]:
  """Returns different random combinations, `trials` of them or all that were found.

  The first ones do not depend on how many are asked for.
  """
  rng = np.random.default_rng(seed)
  found: list[dict[str, Value]] = []
  for _ in range(20 * trials):
    if len(found) == trials:
      break
    drawn = {name: axis.draw(rng) for name, axis in axes.items()}
    if drawn not in found:
      found.append(drawn)
  return found


def corners(axes: Mapping[str, Axis]) -> Sequence[dict[str, Value]]:
  """Returns combinations in which every axis has each of its examples, the others their first."""
  first = {name: axis.examples[0] for name, axis in axes.items()}
  others = [first | {name: example} for name, axis in axes.items() for example in axis.examples[1:]]
  return [first, *others]
