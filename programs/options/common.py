"""The config of every program that learns."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeVar

from agents.options import CheckedOptions
from agents.seeding import Seed
from nodes.runtime.options import EvaluationOptions, RunOptions
from nodes.unrolls.table_names import UNROLLS

C = TypeVar('C', bound='CommonConfig')


class Expected(NamedTuple):
  """What a run of num_steps amounts to; see `programs.estimates`.

  Attributes:
    updates: approximate number of learner steps; of each learner in a run with several independent ones.
    most_updates: learner steps if the learner is as far ahead as replay's ratio allows.
    first_batch: actor_steps until learning can start.
  """

  updates: int
  most_updates: int
  first_batch: int


@dataclasses.dataclass(frozen=True)
class CommonConfig(CheckedOptions):
  """What every program has. Its fields are groups of options, one flag for each option.

  Attributes:
    run: of every run.
    evaluation: of its evaluator.
    agent: the options of what learns, a config of `agents`; None for a program that has none.
  """

  run: RunOptions = RunOptions()
  evaluation: EvaluationOptions = EvaluationOptions()
  agent: Any = None

  @property
  def root_seed(self) -> Seed:
    """The root of all seeds of a program; a resume changes it, so that actors play new episodes."""
    return Seed(self.run.seed).child('resume', self.run.resumes)

  @property
  def num_learners(self) -> int:
    """Learners that share num_steps, each for itself."""
    return 1

  @property
  def learner_batch(self) -> tuple[str, int]:
    """The table that learner batches come from, and their unrolls; 0 if the options do not say so."""
    return UNROLLS, 0

  def expected(self) -> Expected | None:
    """Returns what num_steps amount to; None if the options do not say so.

    Rules of presets ask before the options are validated, so they may not fit together.
    """
    return None

  def check_start(self, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before it has learned anything.

    Args:
      first_batch: actor_steps until learning can start.
    """

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    run = self.run.resolve()
    evaluation = self.evaluation.resolve(run.num_steps)
    return dataclasses.replace(self, run=run, evaluation=evaluation)
