"""The leaderboard of a population: ranks members, and lets the worse continue as the better."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging
from flax import serialization

from agents.population.fusion import fused
from nodes.learning import serialisation
from nodes.population.board import Board, Report
from nodes.population.options import BoardOptions
from nodes.runtime import activity, full_disk, lifecycle, rpc
from nodes.runtime.gate import ReadyGate
from nodes.runtime.reporter import Reporter
from rundir import files, final_params
from rundir.lineage import Event, Lineage
from rundir.lineage import read as read_events


class _Served(NamedTuple):
  """The parameters of the run so far."""

  event: int  # Whose score they have; 0 for parameters without one.
  counts: Mapping[str, int]  # Of their member.
  params: Any  # As data.


class Leaderboard:
  """Keeps the last score of each member, and the learner state that has brought it.

  A member that reports a score waits for no other. The reply says with which state and values it
  continues. Members never call each other, so the offspring of a member that has died is there.

  Each report becomes an event of the lineage, on disk before the reply. A leaderboard that restarts
  continues from there, and repeats the reply of a report that it has decided already. The parameters of
  the best are those of the run: the evaluator fetches them here, and `evaluate.py` finds them as the
  final ones. If no member has had a score at the end, as without an ended episode, they are those of the
  first member whose parameters are finite.

  An agent may have several members as pods. It is ranked once all of them have reported, and its
  learner state is their mean. Until then a pod is told to ask again, and trains on.
  """

  def __init__(self, options: BoardOptions, monitor: Any, name: str = 'leaderboard/0'):
    """Initialises the node; it reads what an earlier incarnation has written in `run`.

    Args:
      options: what it goes by.
      monitor: client of the monitor.
      name: of the node.
    """
    self._options = options
    self._reporter = Reporter(monitor, name, self._measure)
    self._lock = threading.Lock()
    self._board: Board
    self._lineage: Lineage
    self._served: _Served | None = None
    self._finished: dict[int, tuple[Mapping[str, int], Any]] = {}  # Counts and parameters.
    self._failure = ''
    self._states: dict[int, Any] = {}  # Of each agent's last score, as data.
    # Of pods whose siblings have not reported yet.
    self._pending: dict[int, tuple[Report, Any]] = {}
    self._gate, self._ranked = ReadyGate(), ReadyGate()

  def report(
    self,
    member: int,
    incarnation: int,
    number: int,
    counts: Mapping[str, int],
    score: float | None,
    values: Mapping[str, float],
    state: Any,
  ) -> tuple[int, int | None, dict[str, float], Any] | None:
    """Ranks a member by a new score. An RPC; it is idempotent.

    Args:
      member: its number.
      incarnation: of the member.
      number: of the report in this incarnation.
      counts: the member's counters.
      score: None if its parameters were no longer finite.
      values: of the tuned options, with which it got the score.
      state: its learner state, as `serialisation.to_data`; None without a score.

    Returns:
      The event; the member that it copies, None for none; the values that it continues with; the learner
      state that it continues with, None for its own. None while siblings have to report first.

    Raises:
      RuntimeError: `rpc.retry_later_error()` while the event or the parameters cannot be written.
    """
    self._gate.wait()
    self._gate.check()
    with self._lock, _retried_without_room(member):
      if self._board.repeated(member, incarnation, number) is None:
        report = Report(member, incarnation, number, counts, score, values)
        self._pending[member] = report, state
        self._decide(self._options.population.agent_of(member))
      self._serve_best()  # Of an earlier report, if there was no room for its parameters.
      event = self._board.repeated(member, incarnation, number)
      if event is None:
        return None
      return event.event, event.source_member, event.next_values, self._followed(event)

  def finished(self, member: int, counts: Mapping[str, int], params: Any) -> None:
    """Notes that a member has done its steps. An RPC; it is idempotent.

    Args:
      member: its number.
      counts: its counters.
      params: its parameters, as `serialisation.to_data`, if they are finite and have had no score; else
        None.

    Raises:
      RuntimeError: `rpc.retry_later_error()` while the parameters of the run cannot be written.
    """
    self._gate.wait()
    self._gate.check()
    with self._lock, _retried_without_room(member):
      self._serve_best()
      self._finished[member] = counts, params
      if self._served is not None or len(self._finished) < self._options.population.num_members:
        return
      usable = [each for each in sorted(self._finished) if self._finished[each][1] is not None]
      if usable:
        logging.warning('no member has a score; the run has the parameters of member %d', usable[0])
        self._serve(_Served(0, *self._finished[usable[0]]))
      else:
        self._failure = (
          'no member of the population has finite parameters; lower the ranges of --tune'
        )

  def get_variables(self, names: Sequence[str]) -> list[Any] | None:
    """Returns variables of the best, whose version is an event; see `ParameterService`. An RPC.

    The counts are those of all members at their last scores.
    """
    self._ranked.wait()
    self._ranked.check()
    with self._lock:
      if (served := self._served) is None:
        return None
      known = {
        'params': served.params,
        'policy_version': served.event,
        'counts': self._board.counts() or dict(served.counts),
      }
      return [known[name] for name in names]

  def get_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters and the parameters of the best; see `nodes.anakin.Anakin`. An RPC."""
    self._ranked.wait()
    self._ranked.check()
    with self._lock:
      return self._served and (dict(self._served.counts), self._served.params)

  def run(self) -> None:
    """Serves until the program stops."""
    stop = lifecycle.stop_event()
    gates = self._gate.release_on_exit(stop), self._ranked.release_on_exit(stop)
    with self._reporter, gates[0], gates[1]:
      self._restore()
      self._gate.open()
      while not stop.wait(0.2):
        activity.mark(activity.SERVING)
        self._reporter.maybe_report()
        if self._failure:
          raise lifecycle.NonRetryableError(self._failure)

  def _restore(self) -> None:
    options = self._options
    self._lineage = Lineage(options.run_dir)
    events = read_events(options.run_dir)
    self._board = Board(options, events)
    for agent, score in self._board.scores.items():
      first = self._board.first_of(agent)
      if score == -math.inf:
        continue
      try:
        with open(self._path(first), 'rb') as file:
          self._states[agent] = serialization.msgpack_restore(file.read())
      except FileNotFoundError:  # After a power failure, which has taken the event after it.
        logging.warning('the state of event %d is gone: agent %d has no rank', first.event, agent)
        self._board.forget(agent)
    full_disk.write_when_there_is_room(
      self._serve_best, lifecycle.stop_event().is_set, final_params.path(options.run_dir)
    )
    if self._served is not None:
      logging.info('%d event(s) of an earlier leaderboard', len(events))

  def _decide(self, agent: int) -> None:
    """Decides how an agent continues, if all of its pods have reported.

    Raises:
      OSError: the decision cannot be written; nothing is decided.
    """
    pods = self._options.population.pods_of(agent)
    if not all(pod in self._pending for pod in pods):
      return
    reports = [self._pending[pod][0] for pod in pods]
    states = [self._pending[pod][1] for pod in pods if self._pending[pod][0].score is not None]
    events = self._board.decide(reports, round(time.time(), 1))
    self._write(agent, events, fused(states) if states else None)
    for pod in pods:
      del self._pending[pod]

  def _write(self, agent: int, events: Sequence[Event], state: Any) -> None:
    """Writes the events of an agent, after the state that they need, and makes them its last ones."""
    before = self._board.first_of(agent) if agent in self._states else None
    if state is not None:
      files.write(self._path(events[0]), serialisation.serialise(state))
    self._lineage.append(*events)
    for event in events:
      self._board.add(event)
    if state is None:
      self._states.pop(agent, None)
    else:
      self._states[agent] = state
    if before is not None:
      with contextlib.suppress(OSError):
        os.remove(self._path(before))

  def _followed(self, event: Event) -> Any:
    """Returns the learner state that a member continues with after an event; None for its own."""
    population = self._options.population
    if event.source_member is not None:
      # Of a repeated report, that of a later score may be gone.
      return self._states.get(population.agent_of(event.source_member))
    if population.num_pods == 1 or self._board.ends(event):
      return None
    return self._states.get(population.agent_of(event.member))

  def _serve_best(self) -> None:
    """Makes the parameters of the best those of the run; without one, they stay what they were."""
    best = self._board.best
    if best is None:
      return
    first = self._board.first_of(best)
    if self._served is None or self._served.event != first.event:
      self._serve(_Served(first.event, first.counts, self._states[best]['params']))

  def _serve(self, served: _Served) -> None:
    final_params.save(self._options.run_dir, serialisation.serialise(served.params))
    self._served = served
    self._ranked.open()

  def _path(self, event: Event) -> str:
    return os.path.join(self._options.run_dir, 'leaderboard', f'{event.event}.msgpack')

  def _measure(self, seconds: float) -> dict[str, float]:
    del seconds
    # A call holds the lock while it writes, for as long as the disk takes.
    with activity.doing(activity.WRITING_CHECKPOINT), self._lock:
      return self._board.measure()


@contextlib.contextmanager
def _retried_without_room(member: int) -> Iterator[None]:
  """Has a member repeat its call if something cannot be written."""
  try:
    yield
  except OSError as error:
    logging.warning('cannot write what the call of member %d needs: %s', member, error)
    raise rpc.retry_later_error() from error
