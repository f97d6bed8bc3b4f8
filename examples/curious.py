"""A program: Sebulba with a node between actors and learner, which rewards what is rare."""

import dataclasses

import launchpad as lp

from agents.options import option
from environments import user_file
from launchers.placement import Resources
from nodes.learning.options import TransformOptions
from nodes.unrolls import tables
from nodes.unrolls.table_names import UNROLLS, BatchPart
from programs import sebulba
from programs.options.queue import QueueOptions

PLAYED = 'played'  # What actors write and the node reads; the learner reads UNROLLS.
NOVELTY = user_file.named('novelty.py:Novelty', beside=__file__)
PRESETS, make_agent = sebulba.PRESETS, sebulba.make_agent


@dataclasses.dataclass(frozen=True)
class TwoQueues(QueueOptions):
  written_tables = (PLAYED,)

  def unrolls_per_item(self, env_group_size):
    return 1  # As nodes between tables need.

  def make_tables(self, env_group_size):
    played = tables.queue_table(self.queue_size // self.num_replay_shards, PLAYED)
    return tables.all_tables(played, super().make_tables(env_group_size))


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  replay: TwoQueues = TwoQueues()
  novelty: float = option(0.1, 'reward of the first visit to an observation', at_least=0)


def add_novelty(program, config, parts):
  sources = (BatchPart(PLAYED, len(parts.replay)),)  # One unroll of each replay server at a time.
  period, seed = config.learning.update_period, config.root_seed.child('novelty')
  options = TransformOptions('novelty/0', sources, UNROLLS, period, seed)
  node = lp.PyClassNode(NOVELTY, *parts, options, scale=config.novelty)
  flows = {'sends': {'unrolls with bonus': 'replay'}, 'receives': {'originals': 'replay'}}
  program.add_node(node, label='novelty', roles=['transform'], **flows)


def make_program(config):
  return sebulba.make_graph('curious', config, make_agent(config), add_nodes=add_novelty)


def placement(config):
  return sebulba.placement(config) | {'novelty': Resources(restart='on_failure')}
