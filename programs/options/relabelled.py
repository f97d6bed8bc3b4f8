"""Options of programs in which relabellers add targets to unrolls of replay."""

from __future__ import annotations

import abc
import dataclasses

from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import ORIGINALS
from programs.options.prioritized import PrioritizedConfig

_BATCHES = 10  # Of relabelled unrolls, in their table.


@dataclasses.dataclass(frozen=True)
class RelabelledConfig(PrioritizedConfig, abc.ABC):
  """What the graph needs to know of relabellers; the program names the options."""

  @property
  @abc.abstractmethod
  def num_relabellers(self) -> int:
    """Number of relabellers; 0 for none."""

  @property
  @abc.abstractmethod
  def relabelled(self) -> int:
    """Relabelled unrolls in each replica's part of a learner batch; as many from each shard."""

  @property
  @abc.abstractmethod
  def given_relabelled_size(self) -> int:
    """Capacity of the table of relabelled unrolls as the user set it; 0: to be chosen."""

  @property
  def relabelled_from(self) -> tuple[str, ...]:
    """Tables that relabellers read."""
    return (ORIGINALS,)

  @property
  def share_of_online(self) -> OnlineShare | None:
    """The share of online data in what relabellers read; None without offline data."""
    return None

  @property
  def relabelled_size(self) -> int:
    """Capacity of the table of relabelled unrolls of a replica, over its shards."""
    return self.given_relabelled_size or _BATCHES * self.relabelled
