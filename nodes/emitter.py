"""From finished unrolls to replay, with the priorities that the agent gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from acme import specs

from agents.agent import Agent
from agents.types import Unroll
from nodes import audit
from nodes.layout import StreamSpec
from nodes.streams import unroll_spec


class Emitter:
  """An `UnrollWriter` that is made later than it is known where unrolls go.

  Importing Reverb takes seconds, in which the rest gets ready.
  """

  def __init__(
    self,
    agent: Agent,
    environment_spec: specs.EnvironmentSpec,
    streams: Sequence[StreamSpec],
    replay_addresses: Sequence[str],
    audit_dir: str,
  ):
    """Initialises an emitter; `compile` and `start` come before the first unroll.

    Args:
      agent: the algorithm.
      environment_spec: of one environment.
      streams: whose unrolls are written.
      replay_addresses: host:port of each Reverb server.
      audit_dir: see `nodes.audit`.
    """
    self._priorities = jax.jit(agent.initial_priorities)
    self._unroll = unroll_spec(agent, environment_spec)
    self._sizes = {stream.num_envs for stream in streams if stream.training}
    self._addresses = replay_addresses
    self._audit_dir = audit_dir
    self._writer: Any = None

  def compile(self) -> None:
    """Compiles the initial priorities."""
    for size in self._sizes:
      self._priorities(
        jax.tree.map(lambda x, n=size: np.zeros((n, *x.shape), x.dtype), self._unroll)
      )

  def start(self) -> None:
    """Imports Reverb and begins to write."""
    from nodes import unroll_io

    produced = audit.Audit(self._audit_dir, audit.PRODUCED)
    self._writer = unroll_io.UnrollWriter(
      self._addresses, unroll_io.Columns(self._unroll), self._priorities, produced.record
    )

  def put(self, unrolls: Unroll, release: Callable[[], None]) -> None:
    """See `UnrollWriter.put`."""
    self._writer.put(unrolls, release)

  def check(self) -> None:
    """Raises what writing has failed with, if it has."""
    if self._writer is not None:
      self._writer.check()

  def close(self) -> None:
    """Stops writing; what replay has not taken is given up."""
    if self._writer is not None:
      self._writer.close()
