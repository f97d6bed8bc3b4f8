"""Serves a learner's newest parameters to nodes that run inference themselves."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from agents.types import Nest
from nodes.learning import serialisation
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.runtime.gate import ReadyGate

# (learner incarnation, policy_version). A restarted learner resumes from an earlier policy_version and
# reuses the later ones, so policy_version alone is ambiguous.
ParamsVersion = tuple[int, int]
# Incarnations remembered per actor; more never have reports in flight at once.
_INCARNATIONS = 16
# What all nodes together may fetch. A fetch costs the learner about 100 us, and a megabyte of parameters
# 1.3 ms, so either keeps a core busy for a third of the time at most; the updates need the rest.
_FETCHES_PER_SECOND = 1000.0
_BYTES_PER_SECOND = 250e6
_SMOOTHING = 0.9  # Of the time between two versions.


class ParameterServer:
  """Replies with parameters and counts the steps that actors report.

  A `nodes.learning.replay_training.ParameterConsumer`. The version, parameters and counters in one reply
  are consistent.
  """

  def __init__(self, progress: ActingCounters, counter: Any, gate: ReadyGate):
    """Initialises a server without parameters.

    Args:
      progress: receives the actors' steps and episodes.
      counter: of the run.
      gate: opened once the server can reply.
    """
    self._progress = progress
    self._counter = counter
    self._gate = gate
    self._incarnation = lifecycle.new_incarnation()
    self._published: tuple[int, dict[str, float], Nest] | None = None
    self._nbytes = 0  # Of the parameters, whose shapes do not change.
    self._seconds_per_version = math.inf
    self._set_at = -math.inf
    self._fetched: tuple[int, Any] | None = None
    self._copying = threading.Lock()
    self._finished = threading.Event()
    self._reporting = threading.Lock()
    self._reported: dict[str, dict[int, ActingTotals]] = {}
    self._restarts = 0

  @property
  def has_params(self) -> bool:
    """Whether parameters have been set."""
    return self._published is not None

  def get_variables(self, names: Sequence[str]) -> list[Any]:
    """Returns a consistent set of variables; see `ParameterService.get_variables`."""
    assert self._published is not None
    version, counts, params = self._published
    known = {'params': params, 'policy_version': version, 'counts': counts}
    unknown = set(names) - known.keys()
    if unknown:
      raise ValueError(f'there is no variable {min(unknown)!r}; there are {sorted(known)}.')
    return [self._as_data(version, params) if n == 'params' else known[n] for n in names]

  def fetch(
    self,
    held: ParamsVersion | None,
    run: str,
    actor_id: str,
    incarnation: int,
    totals: Sequence[float],
  ) -> tuple[bool, ParamsVersion, Any, float]:
    """Records an actor's totals and returns new parameters, if any; see `ParameterService.fetch`."""
    if run != lifecycle.run_token():
      logging.warning('refused a fetch of %s of another run', actor_id)
      raise rpc.retry_later_error()
    self._take(actor_id, incarnation, ActingTotals(*totals))
    finished = self._finished.is_set()  # Before the parameters are read, which are then the last.
    assert self._published is not None
    version, _, params = self._published
    newest = self._incarnation, version
    same = held is not None and tuple(held) == newest
    data = None if same else self._as_data(version, params)
    return finished, newest, data, self._pause()

  def set_params(self, version: int, params: Nest) -> None:
    """Publishes the parameters; later fetches return them."""
    self._nbytes = self._nbytes or sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    now = time.monotonic()
    last, self._set_at = now - self._set_at, now
    if self._seconds_per_version < math.inf:
      last = _SMOOTHING * self._seconds_per_version + (1 - _SMOOTHING) * last
    self._seconds_per_version = last
    self._published = version, dict(self._counter.get_counts()), params

  def compile(self) -> None:
    """Starts to reply, so that actors compile while the learner does."""
    self._gate.open()

  def start(self) -> None:
    """Does nothing: `compile` has opened the gate."""

  def check(self) -> None:
    """Does nothing: the server has no thread that could fail."""

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the actors' progress and the number of actor restarts."""
    return self._progress.measure(seconds) | {'restarts': float(self._restarts)}

  def totals(self) -> ActingTotals:
    """Returns what the actors have reported since the start."""
    return self._progress.totals()

  def finish_training(self) -> None:
    """Stops each actor at its next fetch."""
    self._finished.set()

  def stop_writing(self) -> None:
    """Does nothing: the nodes that act write the unrolls."""

  def _pause(self) -> float:
    """Returns the seconds that a node waits until its next fetch, at least."""
    nodes = len(self._reported)
    copying = nodes * self._nbytes / _BYTES_PER_SECOND
    # A version is copied to a node once, so slow updates limit the bytes already.
    rarely = self._seconds_per_version > copying
    return max(nodes / _FETCHES_PER_SECOND, 0.0 if rarely else copying)

  def _as_data(self, version: int, params: Nest) -> Any:
    """Returns parameters as `serialisation.to_data`, copied from the device once per version."""
    with self._copying:
      if self._fetched is None or self._fetched[0] != version:
        self._fetched = version, serialisation.to_data(params)
      return self._fetched[1]

  def _take(self, actor_id: str, incarnation: int, totals: ActingTotals) -> None:
    """Counts an incarnation's new totals exactly once; ignores duplicate and stale reports."""
    with self._reporting:
      reported = self._reported.setdefault(actor_id, {})
      known = reported.pop(incarnation, None)
      if known is None:
        # The first report of an incarnation is its baseline. If the actor outlived the previous learner,
        # its earlier steps were either counted there or lost with it.
        self._restarts += bool(reported)
      elif totals.actor_steps > known.actor_steps:
        self._progress.add(totals.minus(known))
      else:
        totals = known
      reported[incarnation] = totals
      if len(reported) > _INCARNATIONS:
        del reported[next(iter(reported))]  # The one silent for the longest time.
