"""The inference server's state for each environment group."""

from __future__ import annotations

import collections
import threading
from typing import Any

import numpy as np

from agents.types import FIRST, LAST, Timestep
from nodes.inference.layout import EnvGroupSpec
from nodes.unrolls.assembler import UnrollAssembler

_NONE = np.zeros(0)
_RETIRED = 64


class EpisodeStatistics:
  """Tracks the raw return and length of the current game in each environment of a group."""

  def __init__(self, num_envs: int):
    self._return = np.zeros(num_envs, np.float64)
    self._length = np.zeros(num_envs, np.int64)
    self._whole = np.ones(num_envs, bool)

  def reset(self, midway: bool = False) -> None:
    """Discards the current games.

    Args:
      midway: whether the next timesteps may be of games whose beginning was not observed. Their returns
        and lengths are left out.
    """
    self._return[:] = 0
    self._length[:] = 0
    self._whole[:] = not midway

  def observe(
    self, timestep: Timestep, game_over: np.ndarray | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Adds a timestep; returns the raw returns and lengths (steps) of the games that it ends.

    Args:
      timestep: fields are `[N, ...]`.
      game_over: bool `[N]`, which games have ended; None if games end with LAST rows.
    """
    self._return += timestep.reward
    self._length += timestep.step_type != FIRST
    over = timestep.step_type == LAST if game_over is None else game_over
    if not over.any():
      return _NONE, _NONE
    whole = over & self._whole
    ended = self._return[whole], self._length[whole]
    self._return[over] = 0
    self._length[over] = 0
    self._whole |= over
    return ended


class EnvGroup:
  """The server's state of one environment group.

  Attributes:
    spec: its actor, index and environments.
    device: index of the actor device that serves it.
    first_slot: its environments use slots `first_slot .. first_slot + num_envs` on that device.
    assembler: assembles its rows into unrolls; None if they are not stored.
    episodes: statistics of its environments.
    lock: guards the attributes below.
    incarnation: identifies the actor's current incarnation; None before the first.
    retired: the most recent earlier incarnations.
    needs_reset: whether the next request resets the slots; True until the incarnation's first reply.
    sequence: number of the last request that got a reply.
    reply: that reply, as `codec` packs it.
    in_flight: the request being served.
    deferred: the request that waits until it can be served.
  """

  def __init__(
    self, spec: EnvGroupSpec, device: int, first_slot: int, assembler: UnrollAssembler | None
  ):
    self.spec = spec
    self.device = device
    self.first_slot = first_slot
    self.assembler = assembler
    self.episodes = EpisodeStatistics(spec.num_envs)
    self.lock = threading.RLock()
    self.incarnation: int | None = None
    self.retired: collections.deque[int] = collections.deque(maxlen=_RETIRED)
    self.needs_reset = True
    self.sequence = -1
    self.reply: tuple[Any, ...] = ()
    self.in_flight: Any = None
    self.deferred: Any = None

  @property
  def connected(self) -> bool:
    """Whether any incarnation of the actor has sent a request."""
    return self.incarnation is not None

  def holds(self, key: tuple[int, int]) -> bool:
    """Returns whether a request with this key is being served or waits."""
    return any(held is not None and held.key == key for held in (self.in_flight, self.deferred))

  def admit(self, incarnation: int, sequence: int) -> int:
    """Starts a new incarnation of the actor, with a request of this sequence number.

    Returns:
      How many rows of the previous incarnation are dropped.
    """
    if self.incarnation is not None:
      self.retired.append(self.incarnation)
    self.incarnation = incarnation
    self.needs_reset = True
    self.sequence, self.reply = -1, ()
    self.episodes.reset(midway=sequence > 0)  # The server may have restarted, and not the actor.
    return self.assembler.reset() if self.assembler else 0
