"""From finished unrolls to replay, with the priorities that the agent gives them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from acme import specs

from agents.agent import Agent
from agents.types import Unroll
from nodes.unrolls.assembler import unroll_spec
from nodes.unrolls.observers import Watchers
from nodes.unrolls.packing import Columns
from rundir import audit


def begin_import() -> futures.Future:
  """Begins to import Reverb, and TensorFlow with it; returns the future of `nodes.unrolls.writer`.

  It takes about as long as all compilation, so it is done beside it.
  """
  return futures.ThreadPoolExecutor(1).submit(importlib.import_module, 'nodes.unrolls.writer')


class Emitter:
  """An `UnrollWriter` that is known to those whose unrolls it writes before Reverb is imported."""

  def __init__(
    self,
    agent: Agent,
    environment_spec: specs.EnvironmentSpec,
    sizes: Collection[int],
    replay_addresses: Sequence[str],
    audit_dir: str,
    watchers: Sequence[Any] = (),
  ):
    """Initialises an emitter; `compile` and `start` come before the first unroll.

    Args:
      agent: the algorithm.
      environment_spec: of one environment.
      sizes: of the groups of environments whose unrolls are written.
      replay_addresses: host:port of each Reverb server.
      audit_dir: see `rundir.audit`.
      watchers: clients of nodes that are shown the unrolls. See `nodes.unrolls.observers`.
    """
    self._priorities = jax.jit(agent.initial_priorities)
    self._unroll = unroll_spec(agent, environment_spec)
    self._sizes = sizes
    self._addresses = replay_addresses
    self._audit_dir = audit_dir
    self._watchers = Watchers(watchers)
    self._importing = begin_import()
    self._writer: Any = None

  def compile(self) -> None:
    """Compiles the initial priorities."""
    for size in self._sizes:
      self._priorities(
        jax.tree.map(lambda x, n=size: np.zeros((n, *x.shape), x.dtype), self._unroll)
      )

  def start(self) -> None:
    """Begins to write, once Reverb has been imported."""
    writer = self._importing.result()
    produced = audit.Audit(self._audit_dir, audit.PRODUCED)
    self._writer = writer.UnrollWriter(
      self._addresses,
      Columns(self._unroll),
      self._priorities,
      produced.record,
      self._watchers.show,
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
    self._watchers.close()
