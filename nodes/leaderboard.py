"""The leaderboard of a population: ranks members, and lets the worse continue as the better."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from absl import logging
from flax import serialization

from nodes.learning import serialisation
from nodes.population.board import Board
from nodes.population.options import BoardOptions
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.gate import ReadyGate
from nodes.runtime.reporter import Reporter
from rundir import files, final_params
from rundir.lineage import Event, Lineage
from rundir.lineage import read as read_events


class Leaderboard:
  """Keeps the last score of each member, and the learner state that has brought it.

  A member that reports a score waits for no other. The reply says with which state and values it
  continues. Members never call each other, so the offspring of a member that has died is there.

  Each report becomes an event of the lineage, on disk before the reply. A leaderboard that restarts
  continues from there, and repeats the reply of a report that it has decided already. The parameters of
  the best are those of the run: the evaluator fetches them here, and `evaluate.py` finds them as the
  final ones.
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
    self._saved = 0  # The event whose parameters are the run's.
    self._states: dict[int, Any] = {}  # Of each member's last score, as data.
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
  ) -> tuple[int, int | None, dict[str, float], Any]:
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
      The event; the member that it copies, None if it continues with its own state; the values that it
      continues with; the learner state of the member that it copies, else None.

    Raises:
      RuntimeError: `rpc.retry_later_error()` while the event cannot be written.
    """
    self._gate.wait()
    self._gate.check()
    with self._lock:
      event = self._board.repeated(member, incarnation, number)
      if event is None:
        event = self._board.decide(
          member, incarnation, number, counts, score, values, round(time.time(), 1)
        )
        try:
          self._write(event, state)
        except OSError as error:
          logging.warning('cannot write the event of member %d: %s', member, error)
          raise rpc.retry_later_error() from error
      # Of a repeated report, that of a later score may be gone.
      copied = None if event.source_member is None else self._states.get(event.source_member)
      return event.event, event.source_member, event.next_values, copied

  def get_params(self) -> tuple[dict[str, int], Any] | None:
    """Returns the counters and the parameters of the best; see `nodes.anakin.Anakin`. An RPC."""
    self._ranked.wait()
    self._ranked.check()
    with self._lock:
      best = self._board.best
      return None if best is None else (best.counts, self._states[best.member]['params'])

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

  def _restore(self) -> None:
    options = self._options
    self._lineage = Lineage(options.run_dir)
    events = read_events(options.run_dir)
    self._board = Board(options.population, options.axes, options.seed, events)
    for member, event in list(self._board.latest.items()):
      if event.score is None:
        continue
      try:
        with open(self._path(event), 'rb') as file:
          self._states[member] = serialization.msgpack_restore(file.read())
      except FileNotFoundError:  # After a power failure, which has taken the event after it.
        logging.warning('the state of event %d is gone: member %d has no rank', event.event, member)
        del self._board.latest[member]
    if self._board.best is not None:
      self._ranked.open()
      logging.info('%d event(s) of an earlier leaderboard', len(events))

  def _write(self, event: Event, state: Any) -> None:
    """Writes an event, after the state that it needs, and makes it the member's last one."""
    before = self._board.latest.get(event.member)
    if event.score is not None:
      files.write(self._path(event), serialisation.serialise(state))
    self._lineage.append(event)
    self._board.add(event)
    if event.score is None:
      self._states.pop(event.member, None)
    else:
      self._states[event.member] = state
      self._ranked.open()
    self._save_best()
    if before is not None and before.score is not None:
      with contextlib.suppress(OSError):
        os.remove(self._path(before))

  def _save_best(self) -> None:
    best = self._board.best
    if best is not None and best.event != self._saved:
      params = serialisation.serialise(self._states[best.member]['params'])
      final_params.save(self._options.run_dir, params)
      self._saved = best.event

  def _path(self, event: Event) -> str:
    return os.path.join(self._options.run_dir, 'leaderboard', f'{event.event}.msgpack')

  def _measure(self, seconds: float) -> dict[str, float]:
    del seconds
    with self._lock:
      return self._board.measure()
