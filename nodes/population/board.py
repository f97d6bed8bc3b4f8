"""What a leaderboard knows and decides, without its RPCs: the members' scores, and offspring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agents.population import rules, space
from nodes.population.options import NONE, TOURNAMENT, BoardOptions
from rundir.lineage import Event

# The last part of a member's steps, in which offspring have the values of their source: nobody would be
# left to replace one whose values turn out to be worse.
SETTLED = 0.2


class Report(NamedTuple):
  """A member has a new score.

  Attributes:
    member: its number.
    incarnation: of the member.
    number: of the report in this incarnation.
    counts: the member's counters.
    score: None if its parameters were no longer finite.
    values: of the tuned options, with which it got the score.
  """

  member: int
  incarnation: int
  number: int
  counts: Mapping[str, int]
  score: float | None
  values: Mapping[str, float]


class Board:
  """The last event of each member, and the rule by which the next one is decided.

  What is ranked is an agent, by the mean score of its pods; a member is an agent, unless there are
  several pods. The random numbers of an event depend on the seed and the event's number alone, so equal
  scores in equal order give equal events.

  Attributes:
    latest: the last event of each member that has one.
  """

  def __init__(self, options: BoardOptions, events: Sequence[Event] = ()):
    """Initialises the board, after some events."""
    self._options, self._population = options, options.population
    self.latest: dict[int, Event] = {}
    self._num_events = 0
    for event in events:
      self.add(event)

  @property
  def scores(self) -> dict[int, float]:
    """The last score of each agent; -inf if the parameters of all of its pods were not finite."""
    found: dict[int, list[float | None]] = {}
    for member, event in self.latest.items():
      found.setdefault(self._population.agent_of(member), []).append(event.score)
    return {agent: _mean(scores) for agent, scores in found.items()}

  @property
  def best(self) -> int | None:
    """The agent with the highest score; None if none has a score."""
    scored = {agent: score for agent, score in self.scores.items() if score > -math.inf}
    return max(scored, key=lambda agent: (scored[agent], -agent), default=None)

  def first_of(self, agent: int) -> Event:
    """Returns the last event of the first pod of an agent that has one."""
    return next(self.latest[pod] for pod in self._population.pods_of(agent) if pod in self.latest)

  def repeated(self, member: int, incarnation: int, number: int) -> Event | None:
    """Returns the event of a report that has been decided already; None if it is new."""
    last = self.latest.get(member)
    if last is not None and (last.incarnation, last.number) == (incarnation, number):
      return last
    return None

  def decide(self, reports: Sequence[Report], time: float) -> list[Event]:
    """Returns an event for each pod of an agent; `add` makes it the last one of that pod.

    Args:
      reports: new ones of all pods of the agent.
      time: in seconds since 1970.
    """
    options, first = self._population, reports[0]
    agent, event = options.agent_of(first.member), self._num_events + 1
    rng = np.random.default_rng(self._options.seed.child('event', event).number())
    score = _mean([report.score for report in reports])
    source = None
    if score == -math.inf or not any(map(self.ends, reports)):
      source = self._source(self.scores | {agent: score}, agent, rng)
    copied = None if source is None else self.first_of(source)
    following = dict(first.values)
    if copied is not None:
      # What has brought the score, not what its member has continued with after it.
      following = dict(copied.values)
      if not any(self._left(report) < SETTLED * self._part(report) for report in reports):
        following = space.explore(self._options.axes, following, options.resample, rng)
    elif score == -math.inf and options.selection != NONE:
      # Nobody is better: only other values can help.
      following = space.draws(self._options.axes, rng)
    return [
      Event(
        event + k,
        time,
        report.member,
        report.incarnation,
        report.number,
        dict(report.counts),
        report.score,
        dict(report.values),
        None if copied is None else copied.event,
        None if copied is None else copied.member,
        following,
      )
      for k, report in enumerate(reports)
    ]

  def ends(self, event: Event | Report) -> bool:
    """Returns whether a member keeps what it has after a score, since its next one is its last.

    So the last score is that of the parameters that training ends with.
    """
    return self._left(event) < self._population.ready_steps

  def counts(self) -> dict[str, int]:
    """Returns the sums of the members' counters at their last scores."""
    found = [event.counts for event in self.latest.values()]
    return {name: sum(counts[name] for counts in found) for name in found[0]} if found else {}

  def forget(self, agent: int) -> None:
    """Takes its rank from an agent whose learner state is gone."""
    for pod in self._population.pods_of(agent):
      self.latest.pop(pod, None)

  def add(self, event: Event) -> None:
    """Makes an event the last one of its member."""
    self.latest[event.member] = event
    self._num_events = max(self._num_events, event.event)

  def _part(self, event: Event | Report) -> int:
    return self._population.steps_of(event.member, self._options.num_steps)

  def _left(self, event: Event | Report) -> int:
    return self._part(event) - event.counts['actor_steps']

  def _source(
    self, scores: Mapping[int, float], agent: int, rng: np.random.Generator
  ) -> int | None:
    options = self._population
    if options.selection == NONE:
      return None
    if options.selection == TOURNAMENT:
      return rules.tournament(scores, agent, rng)
    return rules.truncation(scores, agent, options.truncation, rng)

  def measure(self) -> dict[str, float]:
    """Returns measurements of the population: its scores, and the values of the best."""
    best = self.best
    if best is None:
      return {}
    scores = [event.score for event in self.latest.values() if event.score is not None]
    first = self.first_of(best)
    of_best: dict[str, Any] = {f'best_{name}': value for name, value in first.values.items()}
    return {
      'best_score': max(scores),
      'mean_score': sum(scores) / len(scores),
      'worst_score': min(scores),
      'members_with_score': float(len(scores)),
      'best_member': float(first.member),
      'events': float(self._num_events),
      **of_best,
    }


def _mean(scores: Sequence[float | None]) -> float:
  """Returns the mean of the scores that there are; -inf if there is none."""
  found = [score for score in scores if score is not None]
  return sum(found) / len(found) if found else -math.inf
