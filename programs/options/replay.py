"""Replay: the options that all kinds share, and what a graph asks each kind."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from agents.options import CheckedOptions, option
from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import ORIGINALS, UNROLLS, BatchPart
from nodes.unrolls.tables import Table
from programs.options.common import Expected

R = TypeVar('R', bound='ReplayOptions')


class Playing(NamedTuple):
  """What the actors of a run play.

  Attributes:
    num_steps: actor_steps of the run.
    environments: training environments of a replica.
    replicas: number of replicas.
    unroll_length: transitions of an unroll that are trained on.
    unroll_rows: its rows.
  """

  num_steps: int
  environments: int
  replicas: int
  unroll_length: int
  unroll_rows: int

  def unrolls(self, steps: int) -> int:
    """Returns the unrolls that a replica's actors finish in `steps` actor_steps of all replicas."""
    rows = steps // (self.environments * self.replicas)
    return self.environments * max(0, (rows - self.unroll_rows) // self.unroll_length + 1)

  def steps_until(self, unrolls: int) -> int:
    """Returns the actor_steps, summed over replicas, until each replica has `unrolls` unrolls."""
    each = math.ceil(unrolls / self.environments)
    rows = self.unroll_rows + (each - 1) * self.unroll_length
    return rows * self.environments * self.replicas


@dataclasses.dataclass(frozen=True)
class ReplayOptions(CheckedOptions):
  """What a learner batch takes from replay.

  Each kind of replay adds its own options, and answers what the graph asks: the tables of a server, what
  is written to them and what a batch takes from them.
  """

  batch_size: int = option(
    16,
    'unrolls that each replica adds to a learner batch, split over its learner devices; an update uses '
    'num_replicas times as many',
    at_least=1,
  )
  num_replay_shards: int = option(
    1,
    'parts of the replay of each replica, filled and sampled evenly: servers, or rings under Anakin',
    at_least=1,
  )

  @property
  def written_tables(self) -> tuple[str, ...]:
    """Tables of replay that each new unroll is written to."""
    return (UNROLLS,)

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The unrolls that each replica adds to a learner batch, by table of replay."""
    return (BatchPart(UNROLLS, self.batch_size),)

  @property
  def max_in_flight(self) -> int | None:
    """Unrolls in transfer to a learner beyond its batch; None: a batch."""
    return None

  @property
  def checkpoint_period(self) -> float:
    """Seconds between checkpoints of replay; 0 for none."""
    return 0.0

  @property
  def num_relabellers(self) -> int:
    """Nodes that copy unrolls from table to table with fresh targets; 0 for none."""
    return 0

  @property
  def relabelled(self) -> int:
    """Relabelled unrolls in each replica's part of a learner batch; as many from each shard."""
    return 0

  @property
  def relabelled_from(self) -> tuple[str, ...]:
    """Tables that relabellers read."""
    return (ORIGINALS,)

  @property
  def share_of_online(self) -> OnlineShare | None:
    """The share of online data in what relabellers read; None without offline data."""
    return None

  def unrolls_per_item(self, env_group_size: int) -> int:
    """Returns the unrolls in an item of replay: one, so that each has a priority of its own.

    Args:
      env_group_size: environments whose unrolls are completed and written together.
    """
    del env_group_size
    return 1

  def make_tables(self, env_group_size: int) -> Sequence[Table]:
    """Returns the tables of each replay server.

    Args:
      env_group_size: as in `unrolls_per_item`.
    """
    raise NotImplementedError

  def resolve(self: R, env_group_size: int) -> R:
    """Returns the options with every 'choose for me' replaced by the choice."""
    del env_group_size
    return self

  def check_items(self, env_group_size: int) -> None:
    """Raises ValueError, one sentence, unless the items fit into the tables."""

  def expected(self, playing: Playing) -> Expected | None:
    """Returns what a run amounts to; None if the options do not say so."""
    del playing
    return None

  def check_start(self, num_steps: int, first_batch: int) -> None:
    """Raises ValueError, one sentence, if a run ends before learning can start.

    Args:
      num_steps: actor_steps of the run.
      first_batch: actor_steps until learning can start.
    """
