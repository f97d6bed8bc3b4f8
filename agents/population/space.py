"""Options that a population tunes: their ranges, values at first, and changes. Imports no JAX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents import options
from agents.options import Range

FACTORS = 0.8, 1.2  # Of a perturbed value, as in Jaderberg et al. 2017.
_DIGITS = 4  # Significant digits of a value.


@dataclasses.dataclass(frozen=True)
class Axis:
  """One option of an agent, whose logarithm is uniform from `low` to `high` at first.

  Of an option that is 1 at most, such as a discount, all this is said of its distance to 1: 0.99 and
  0.999 are as far apart as 0.9 and 0.99.

  Attributes:
    name: of the option.
    low, high: ends of its range.
    allowed: what the option may be at all; changes may leave the range, but not this.
  """

  name: str
  low: float
  high: float
  allowed: Range

  def draw(self, rng: np.random.Generator) -> float:
    """Returns a value of the range."""
    return self.at(rng.random())

  def at(self, quantile: float) -> float:
    """Returns the value at a quantile in [0, 1] of the range."""
    low, high = (math.log(self._measured(end)) for end in (self.low, self.high))
    return self._value(math.exp(low + quantile * (high - low)))

  def perturb(self, value: float, rng: np.random.Generator) -> float:
    """Returns a value times one of `FACTORS`; the value itself if that is not allowed."""
    changed = self._value(self._measured(value) * FACTORS[int(rng.integers(2))])
    return changed if changed in self.allowed else value

  @property
  def from_one(self) -> bool:
    """Whether the distance to 1 counts."""
    return self.allowed.at_most == 1

  def _measured(self, value: float) -> float:
    return 1.0 - value if self.from_one else value

  def _value(self, measured: float) -> float:
    rounded = float(f'{measured:.{_DIGITS}g}')
    return round(1.0 - rounded, 12) if self.from_one else rounded


def parse(text: str, config: Any) -> tuple[Axis, ...]:
  """Returns the axes that --tune names.

  Args:
    text: such as 'learning_rate=1e-5..1e-2,entropy_cost=1e-4..1e-1'; '' for none.
    config: the options of the agent, whose `tunable` names those that may change.

  Raises:
    ValueError: one sentence.
  """
  allowed = {leaf.name: leaf.allowed for leaf in options.leaves(config)}
  axes: list[Axis] = []
  for word in filter(None, text.split(',')):
    name, _, ends = word.strip().partition('=')
    try:
      low, high = map(float, ends.split('..'))
    except ValueError:
      raise ValueError(
        f'--tune has {word!r}; give OPTION=LOW..HIGH, such as learning_rate=1e-5..1e-2.'
      ) from None
    if name not in config.tunable:
      raise ValueError(
        f'--tune={name} is not an option that this agent can change as it learns; there are: '
        f'{", ".join(config.tunable)}.'
      )
    if name in (axis.name for axis in axes):
      raise ValueError(f'--tune has {name} twice; remove one.')
    axes.append(_checked(Axis(name, low, high, allowed[name] or Range())))
  return tuple(axes)


def _checked(axis: Axis) -> Axis:
  said = f'--tune={axis.name}={axis.low:g}..{axis.high:g}'
  if not axis.low < axis.high < math.inf:
    raise ValueError(f'{said}: LOW must be below HIGH, both finite.')
  if axis.from_one and axis.high >= 1:
    raise ValueError(f'{said}: HIGH must be below 1, since distances to 1 are multiplied.')
  if axis.low <= 0 and not axis.from_one:
    raise ValueError(f'{said}: LOW must be above 0, since values are multiplied.')
  for end in (axis.low, axis.high):
    if end not in axis.allowed:
      raise ValueError(f'{said}: set both ends to {axis.allowed}.')
  return axis


def draws(axes: Sequence[Axis], rng: np.random.Generator) -> dict[str, float]:
  """Returns a value of each axis, by name."""
  return {axis.name: axis.draw(rng) for axis in axes}


def spread(axes: Sequence[Axis], count: int, rng: np.random.Generator) -> list[dict[str, float]]:
  """Returns the values of some members at first, which cover the range of each axis evenly.

  Each of `count` equal parts of a range has one member, by a permutation of its own (a Latin hypercube).
  So no range is left to a few members by chance.
  """
  columns = {}
  for axis in axes:
    quantiles = (rng.permutation(count) + rng.random(count)) / count
    columns[axis.name] = [axis.at(float(quantile)) for quantile in quantiles]
  return [{name: values[k] for name, values in columns.items()} for k in range(count)]


def explore(
  axes: Sequence[Axis], values: Mapping[str, float], resample: float, rng: np.random.Generator
) -> dict[str, float]:
  """Returns changed values (Jaderberg et al. 2017, "explore").

  Args:
    axes: the options.
    values: of the member that was copied.
    resample: probability with which an option is drawn anew; it is perturbed otherwise.
    rng: random numbers.
  """
  return {
    axis.name: axis.draw(rng) if rng.random() < resample else axis.perturb(values[axis.name], rng)
    for axis in axes
  }
