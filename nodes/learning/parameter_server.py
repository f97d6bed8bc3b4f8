"""What a learner without inference serves: its newest parameters, to actors that act themselves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import jax
from absl import logging

from agents.types import Nest
from nodes.runtime import lifecycle, rpc
from nodes.runtime.counters import ActingCounters, ActingTotals
from nodes.runtime.gate import ReadyGate

# Which parameters an actor has: a life of the learner, and the policy version in it. After a restart
# the learner goes on from an earlier version, so versions alone would not tell them apart.
ParamsVersion = tuple[int, int]
# Of an actor; more of them have words under way at no time.
_LIVES = 16


class ParameterServer:
  """Answers with parameters, and counts what actors say that they have done.

  A `nodes.learning.loop.ParameterConsumer`. One reply has version, parameters and counters of one
  moment.
  """

  def __init__(self, progress: ActingCounters, counter: Any, gate: ReadyGate):
    """Initialises a server without parameters.

    Args:
      progress: gets what the actors have done.
      counter: of the run.
      gate: opened when the first answer can be given.
    """
    self._progress = progress
    self._counter = counter
    self._gate = gate
    self._life = lifecycle.new_incarnation()
    self._published: tuple[int, dict[str, float], Nest] | None = None
    self._fetched: tuple[int, Nest] | None = None
    self._copying = threading.Lock()
    self._finished = threading.Event()
    self._reporting = threading.Lock()
    self._reported: dict[str, dict[int, ActingTotals]] = {}
    self._restarts = 0

  @property
  def has_params(self) -> bool:
    """Whether there is something to hand out."""
    return self._published is not None

  def get_variables(self, names: Sequence[str]) -> list[Nest]:
    """Returns variables of one moment; see `LearnerNode.get_variables`."""
    assert self._published is not None
    version, counts, params = self._published
    known = {'params': params, 'policy_version': version, 'counts': counts}
    unknown = set(names) - known.keys()
    if unknown:
      raise ValueError(f'there is no variable {min(unknown)!r}; there are {sorted(known)}.')
    return [self._on_host(version, params) if n == 'params' else known[n] for n in names]

  def fetch(
    self,
    held: ParamsVersion | None,
    run: str,
    actor_id: str,
    incarnation: int,
    totals: Sequence[float],
  ) -> tuple[bool, ParamsVersion, Nest | None]:
    """Takes an actor's totals and returns other parameters than it has; see `LearnerNode.fetch`."""
    if run != lifecycle.run_token():
      logging.warning('a question of %s of another run was not answered', actor_id)
      raise rpc.retry_later_error()
    self._take(actor_id, incarnation, ActingTotals(*totals))
    assert self._published is not None
    version, _, params = self._published
    newest = self._life, version
    same = held is not None and tuple(held) == newest
    return self._finished.is_set(), newest, None if same else self._on_host(version, params)

  def set_params(self, version: int, params: Nest) -> None:
    """Makes these the parameters that are handed out."""
    self._published = version, dict(self._counter.get_counts()), params

  def compile(self) -> None:
    """Begins to reply, so that actors compile while the learner does."""
    self._gate.open()

  def start(self) -> None:
    """There is nothing left to start."""

  def check(self) -> None:
    """Nothing here fails by itself."""

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns what the actors have done, and how often one of them has been started again."""
    return self._progress.measure(seconds) | {'restarts': float(self._restarts)}

  def finish_training(self) -> None:
    """Tells the actors to stop, each when it asks next."""
    self._finished.set()

  def _on_host(self, version: int, params: Nest) -> Nest:
    """Returns parameters as NumPy arrays, copied once for each version."""
    with self._copying:
      if self._fetched is None or self._fetched[0] != version:
        self._fetched = version, jax.device_get(params)
      return self._fetched[1]

  def _take(self, actor_id: str, incarnation: int, totals: ActingTotals) -> None:
    """Counts what is new in the totals of a life, once, however often and late they arrive."""
    with self._reporting:
      lives = self._reported.setdefault(actor_id, {})
      known = lives.pop(incarnation, None)
      if known is None:
        # A life begins with nothing done. One that another life of the learner has known has done
        # what that one counted, or what is undone with it.
        self._restarts += bool(lives)
      elif totals.actor_steps > known.actor_steps:
        self._progress.add(totals.minus(known))
      else:
        totals = known
      lives[incarnation] = totals
      if len(lives) > _LIVES:
        del lives[next(iter(lives))]  # The one that has been silent for longest.
