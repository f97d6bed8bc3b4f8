"""A program with two tables: V-trace learns from a queue of new unrolls, and from older ones again."""

import dataclasses

from agents.options import option
from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS, BatchPart
from programs import sebulba
from programs.parts.replay import make_queue

REPLAYED = 'replayed'  # The second table; UNROLLS is the queue.
PRESETS, make_agent, placement = sebulba.PRESETS, sebulba.make_agent, sebulba.placement


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  replayed: int = option(8, 'unrolls of a batch that are replayed', at_least=1)
  replayed_size: int = option(1000, 'unrolls that the second table holds', at_least=1)
  unrolls_per_item = 1  # As batches of several tables need.

  @property
  def tables(self):  # Each new unroll is written to both.
    return UNROLLS, REPLAYED

  @property
  def batch_parts(self):  # Unrolls of each table in a batch of the learner.
    return BatchPart(UNROLLS, self.batch_size - self.replayed), BatchPart(REPLAYED, self.replayed)

  def _check(self):
    if self.replayed >= self.batch_size:
      raise ValueError(f'--replayed={self.replayed} must be below --batch_size={self.batch_size}.')


def make_program(config):
  uniform = tables.uniform_table(config.replayed_size, min_size=1, name=REPLAYED)
  together = tables.all_tables(make_queue(config), uniform)
  return sebulba.make_graph('replayed', config, make_agent(config), together)
