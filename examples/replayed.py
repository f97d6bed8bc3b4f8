"""A program with two tables: V-trace learns from a queue of new unrolls, and from older ones again."""

import dataclasses

from agents.options import option
from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS, BatchPart
from programs import sebulba
from programs.options.queue import QueueOptions

REPLAYED = 'replayed'  # The second table; UNROLLS is the queue.
PRESETS, make_agent, placement = sebulba.PRESETS, sebulba.make_agent, sebulba.placement


@dataclasses.dataclass(frozen=True)
class ReplayedOptions(QueueOptions):
  replayed: int = option(8, 'unrolls of a batch that are replayed', at_least=1)
  replayed_size: int = option(1000, 'unrolls that the second table holds', at_least=1)
  written_tables = UNROLLS, REPLAYED  # Each new unroll is written to both.

  @property
  def batch_parts(self):  # Unrolls of each table in a batch of the learner.
    return BatchPart(UNROLLS, self.batch_size - self.replayed), BatchPart(REPLAYED, self.replayed)

  def unrolls_per_item(self, env_group_size):
    return 1  # As batches of several tables need.

  def make_tables(self, env_group_size):
    uniform = tables.uniform_table(self.replayed_size, min_size=1, name=REPLAYED)
    return tables.all_tables(super().make_tables(env_group_size), uniform)

  def _check(self):
    if self.replayed >= self.batch_size:
      raise ValueError(f'--replayed={self.replayed} must be below --batch_size={self.batch_size}.')


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  replay: ReplayedOptions = ReplayedOptions()


def make_program(config):
  return sebulba.make_graph('replayed', config, make_agent(config))
