"""Which trials a sweep has: all of a list, or as Optuna's TPE suggests them."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sweeps.space import Axis, Choices, Value

Values = Mapping[str, Value]


class Search(abc.ABC):
  """A source of trials."""

  @abc.abstractmethod
  def begin(self, recorded: Sequence[Values]) -> Sequence[int]:
    """Returns the positions of the recorded trials that belong to this search, in its order.

    Args:
      recorded: the trials of earlier commands, oldest first.
    """

  @abc.abstractmethod
  def next(self) -> Values | None:
    """Returns a new trial; None if there are no more."""

  @abc.abstractmethod
  def tell(self, values: Values, result: float | None) -> None:
    """Takes the result of a trial, larger or smaller as the goal says; None if it failed."""


class Listed(Search):
  """Trials that are known from the start."""

  def __init__(self, trials: Sequence[Values]):
    """Initialises the search; `trials` differ from each other."""
    self._trials = trials
    self._new: list[Values] = []

  def begin(self, recorded: Sequence[Values]) -> Sequence[int]:
    """Returns the positions of its trials."""
    self._new = [values for values in self._trials if values not in recorded]
    return [recorded.index(values) for values in self._trials if values in recorded]

  def next(self) -> Values | None:
    """Returns the next trial that was not recorded."""
    return self._new.pop(0) if self._new else None

  def tell(self, values: Values, result: float | None) -> None:
    """Ignores the result."""


class Tpe(Search):
  """Trials that the tree-structured Parzen estimator of Optuna suggests, from the results so far."""

  def __init__(self, axes: Mapping[str, Axis], trials: int, seed: int, goal: str):
    """Initialises the search.

    Args:
      axes: by flag name.
      trials: number of trials.
      seed: of the suggestions.
      goal: 'maximize' or 'minimize'.

    Raises:
      ValueError: Optuna is not installed; one sentence.
    """
    try:
      import optuna
    except ModuleNotFoundError as error:
      raise ValueError(
        'search: tpe needs a package that is not installed; run `make add PACKAGES=optuna`, or set '
        'search to random.'
      ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    self._seed = seed
    self._study = optuna.create_study(sampler=self._sampler(0), direction=goal)
    self._failed = optuna.trial.TrialState.FAIL
    self._axes = axes
    self._left = trials
    self._asked: list[tuple[Values, Any]] = []
    self._distributions: dict[str, Any] = {}
    kinds = optuna.distributions
    for name, axis in axes.items():
      if isinstance(axis, Choices):
        made: Any = kinds.CategoricalDistribution(axis.values)
      else:
        kind = kinds.IntDistribution if axis.whole else kinds.FloatDistribution
        made = kind(axis.low, axis.high, log=axis.log)
      self._distributions[name] = made

  def begin(self, recorded: Sequence[Values]) -> Sequence[int]:
    """Returns the positions of the recorded trials of this space, of as many as it has trials."""
    mine = [i for i, values in enumerate(recorded) if self._in_space(values)][: self._left]
    for i in mine:
      self._study.enqueue_trial(dict(recorded[i]))
      self._ask()
    # The recorded trials have drawn nothing from the sampler, which would suggest the first ones again.
    self._study.sampler = self._sampler(len(mine))
    return mine

  def _sampler(self, done: int) -> Any:
    """Returns the sampler of a search that resumes after `done` trials."""
    import optuna

    seed = self._seed
    if done:
      seed = int(np.random.SeedSequence([seed, done]).generate_state(1)[0])
    with warnings.catch_warnings():
      warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
      return optuna.samplers.TPESampler(seed=seed, constant_liar=True)

  def next(self) -> Values | None:
    """Returns the next suggestion."""
    return self._ask() if self._left else None

  def tell(self, values: Values, result: float | None) -> None:
    """Takes the result of a suggestion."""
    trial = next(trial for known, trial in self._asked if known == values)
    self._asked = [(known, other) for known, other in self._asked if other is not trial]
    if result is None:
      self._study.tell(trial, state=self._failed)
    else:
      self._study.tell(trial, result)

  def _ask(self) -> Values:
    self._left -= 1
    trial = self._study.ask(self._distributions)
    values = {
      name: trial.params[name]
      if isinstance(axis, Choices)
      else axis.rounded(float(trial.params[name]))
      for name, axis in self._axes.items()
    }
    self._asked.append((values, trial))
    return values

  def _in_space(self, values: Values) -> bool:
    if values.keys() != self._axes.keys():
      return False
    for name, axis in self._axes.items():
      value = values[name]
      if isinstance(axis, Choices):
        if value not in axis.values:
          return False
      elif isinstance(value, str) or not axis.low <= value <= axis.high:
        return False
    return True
