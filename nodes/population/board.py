"""What a leaderboard knows and decides, without its RPCs: the members' scores, and offspring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.population import rules, space
from agents.population.space import Axis
from agents.seeding import Seed
from nodes.population.options import NONE, TOURNAMENT, PopulationOptions
from rundir.lineage import Event


class Board:
  """The last event of each member, and the rule by which the next one is decided.

  The random numbers of an event depend on the seed and the event's number alone, so equal scores in
  equal order give equal events.

  Attributes:
    latest: the last event of each member that has one.
  """

  def __init__(
    self,
    options: PopulationOptions,
    axes: Sequence[Axis],
    seed: Seed,
    events: Sequence[Event] = (),
  ):
    """Initialises the board, after some events."""
    self._options, self._axes, self._seed = options, axes, seed
    self.latest: dict[int, Event] = {}
    self._num_events = 0
    for event in events:
      self.add(event)

  @property
  def scores(self) -> dict[int, float]:
    """The last score of each member; -inf if its parameters were not finite."""
    return {
      member: -math.inf if event.score is None else event.score
      for member, event in self.latest.items()
    }

  @property
  def best(self) -> Event | None:
    """The last event of the member with the highest score; None if no member has a score."""
    scored = [event for event in self.latest.values() if event.score is not None]
    return max(scored, key=lambda event: (event.score, -event.member), default=None)

  def repeated(self, member: int, incarnation: int, number: int) -> Event | None:
    """Returns the event of a report that has been decided already; None if it is new."""
    last = self.latest.get(member)
    if last is not None and (last.incarnation, last.number) == (incarnation, number):
      return last
    return None

  def decide(
    self,
    member: int,
    incarnation: int,
    number: int,
    counts: Mapping[str, int],
    score: float | None,
    values: Mapping[str, float],
    time: float,
  ) -> Event:
    """Returns the event of a new report; `add` makes it the member's last one.

    Args:
      member: its number.
      incarnation: of the member.
      number: of the report in this incarnation.
      counts: the member's counters.
      score: None if its parameters were no longer finite.
      values: of the tuned options, with which it got the score.
      time: in seconds since 1970.
    """
    event = self._num_events + 1
    rng = np.random.default_rng(self._seed.child('event', event).number())
    scores = self.scores | {member: -math.inf if score is None else score}
    source = self._source(scores, member, rng)
    copied = None if source is None else self.latest[source]
    following = dict(values)
    if copied is not None:
      # What has brought the score, not what its member has continued with after it.
      following = space.explore(self._axes, copied.values, self._options.resample, rng)
    elif score is None and self._options.selection != NONE:
      following = space.draws(self._axes, rng)  # Nobody is better: only other values can help.
    return Event(
      event,
      time,
      member,
      incarnation,
      number,
      dict(counts),
      score,
      dict(values),
      None if copied is None else copied.event,
      source,
      following,
    )

  def add(self, event: Event) -> None:
    """Makes an event the last one of its member."""
    self.latest[event.member] = event
    self._num_events = max(self._num_events, event.event)

  def _source(
    self, scores: Mapping[int, float], member: int, rng: np.random.Generator
  ) -> int | None:
    if self._options.selection == NONE:
      return None
    if self._options.selection == TOURNAMENT:
      return rules.tournament(scores, member, rng)
    return rules.truncation(scores, member, self._options.truncation, rng)

  def measure(self) -> dict[str, float]:
    """Returns measurements of the population: its scores, and the values of the best."""
    best = self.best
    if best is None:
      return {}
    scores = [event.score for event in self.latest.values() if event.score is not None]
    of_best: dict[str, Any] = {f'best_{name}': value for name, value in best.values.items()}
    return {
      'best_score': max(scores),
      'mean_score': sum(scores) / len(scores),
      'worst_score': min(scores),
      'members_with_score': float(len(scores)),
      'best_member': float(best.member),
      'events': float(self._num_events),
      **of_best,
    }
