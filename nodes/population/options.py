"""Options of a population. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from agents.networks.config import require_choice
from agents.options import CheckedOptions, option
from agents.population.space import Axis
from agents.seeding import Seed

TRUNCATION, TOURNAMENT, NONE = 'truncation', 'tournament', 'none'


@dataclasses.dataclass(frozen=True)
class PopulationOptions(CheckedOptions):
  """The members: learners that train alone, of which the worse copy the better."""

  num_members: int = option(
    8,
    'learners; each trains with environments of its own and an equal part of num_steps',
    at_least=1,
    at_most=1024,
  )
  tune: str = option(
    'learning_rate=1e-5..1e-2,entropy_cost=1e-4..1e-1',
    "the agent's options that differ between members and change as they learn, as "
    'OPTION=LOW..HIGH,...; the values at first cover these ranges evenly, by their logarithm, of a '
    'discount or a lambda by its distance to 1; '
    'docs/programs.md#population lists what can be tuned; empty: none',
  )
  selection: str = option(
    TRUNCATION,
    'whom a member copies once it has a new score: truncation, one of the best if it is among the worst '
    '(Jaderberg et al. 2017); tournament, an opponent that has won, as in ElegantRL-Podracer; none, no '
    'other member, as in a random search',
  )
  ready_steps: int = option(
    0,
    'actor_steps of a member between two scores, each the mean return of the episodes that have ended '
    "since the one before; 0: a twentieth of a member's part of num_steps",
    at_least=0,
  )
  num_pods: int = option(
    1,
    'members that are pods of one agent: they begin with equal parameters and have equal values, are '
    'ranked by their mean score, and continue with the mean of their parameters and optimizer states '
    '(model fusion in FinRL-Podracer)',
    at_least=1,
  )
  truncation: float = option(
    0.2,
    'share of the members that are replaced under truncation, by offspring of as many of the best; '
    'Jaderberg et al.: 0.2',
    above=0,
    at_most=0.5,
  )
  resample: float = option(
    0.25,
    'probability that a member which copies another draws an option from its range; otherwise it '
    'multiplies the copied value by 0.8 or 1.2',
    at_least=0,
    at_most=1,
  )

  @property
  def num_agents(self) -> int:
    """What is ranked: the members, or with several pods each, groups of them."""
    return self.num_members // self.num_pods

  def agent_of(self, member: int) -> int:
    """Returns the agent that a member is a pod of."""
    return member // self.num_pods

  def pods_of(self, agent: int) -> range:
    """Returns the members that are the pods of an agent."""
    return range(agent * self.num_pods, (agent + 1) * self.num_pods)

  def steps_of(self, member: int, num_steps: int) -> int:
    """Returns the part of num_steps that a member trains for."""
    return num_steps // self.num_members + (member < num_steps % self.num_members)

  def resolve(self, num_steps: int) -> PopulationOptions:
    """Returns the options with every 'choose for me' replaced by the choice, for a run's length."""
    ready_steps = self.ready_steps or max(1, num_steps // self.num_members // 20)
    return dataclasses.replace(self, ready_steps=ready_steps)

  def _check(self) -> None:
    require_choice('selection', self.selection, (TRUNCATION, TOURNAMENT, NONE))
    if self.num_members % self.num_pods:
      raise ValueError(
        f'--num_members={self.num_members} are not whole agents of --num_pods={self.num_pods} each; '
        'make it a multiple.'
      )
    if self.selection != TRUNCATION:
      self._require_default(f'--selection={TRUNCATION}', 'truncation')
    if self.selection == NONE:
      self._require_default('--selection', 'resample')


class BoardOptions(NamedTuple):
  """What a leaderboard goes by.

  Attributes:
    population: the options of the population.
    axes: those that it tunes.
    num_steps: of all members together.
    seed: of all random numbers.
    run_dir: the run directory.
  """

  population: PopulationOptions
  axes: tuple[Axis, ...]
  num_steps: int
  seed: Seed
  run_dir: str


class Place(NamedTuple):
  """The place of a learner in a population.

  Attributes:
    number: of this member, from 0.
    ready_steps: as the option says.
    leaderboard: Courier client of the leaderboard.
  """

  number: int
  ready_steps: int
  leaderboard: Any
