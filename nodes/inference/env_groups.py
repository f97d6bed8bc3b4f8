"""What the inference server keeps for each group of environments."""

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
  """Follows the raw return and length of each environment of a stream, game by game."""

  def __init__(self, num_envs: int):
    self._return = np.zeros(num_envs, np.float64)
    self._length = np.zeros(num_envs, np.int64)

  def reset(self) -> None:
    """Forgets the episodes under way."""
    self._return[:] = 0
    self._length[:] = 0

  def observe(
    self, timestep: Timestep, game_over: np.ndarray | None = None
  ) -> tuple[np.ndarray, np.ndarray]:
    """Takes a timestep `[N]`; returns raw returns and lengths (steps) of what just ended.

    Args:
      timestep: fields are `[N, ...]`.
      game_over: bool `[N]`, which games have ended; None: those whose row is LAST.
    """
    self._return += timestep.reward
    self._length += timestep.step_type != FIRST
    over = timestep.step_type == LAST if game_over is None else game_over
    if not over.any():
      return _NONE, _NONE
    ended = self._return[over], self._length[over]
    self._return[over] = 0
    self._length[over] = 0
    return ended


class EnvGroup:
  """What the server knows about one stream.

  Attributes:
    spec: its actor, index and environments.
    device: index of the actor device that serves it.
    first_slot: its environments are slots `first_slot .. first_slot + num_envs` there.
    assembler: of its rows; None if they are not kept.
    episodes: of its environments.
    lock: for what follows.
    incarnation: identity of the life of the actor that the server serves; None before the first.
    retired: identities of the lives before it, the latest of them.
    needs_reset: whether that life has had no answer yet, so that its slots are still to be wiped.
    sequence: the number of the last request that was answered.
    reply: that answer, packed.
    in_flight: the request that is being answered.
    deferred: a request that has to wait until it may be.
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
    self.reply = b''
    self.in_flight: Any = None
    self.deferred: Any = None

  @property
  def connected(self) -> bool:
    """Whether any life of the actor has asked yet."""
    return self.incarnation is not None

  def admit(self, incarnation: int) -> int:
    """Begins a new life of the actor. Returns how many rows of the last one that loses."""
    if self.incarnation is not None:
      self.retired.append(self.incarnation)
    self.incarnation = incarnation
    self.needs_reset = True
    self.sequence, self.reply = -1, b''
    self.episodes.reset()
    return self.assembler.reset() if self.assembler else 0
