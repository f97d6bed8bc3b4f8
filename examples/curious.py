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
from programs.parts.replay import make_queue

PLAYED = 'played'  # What actors write and the node reads; the learner reads UNROLLS.
NOVELTY = user_file.named('novelty.py:Novelty', beside=__file__)
PRESETS, make_agent = sebulba.PRESETS, sebulba.make_agent


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  novelty: float = option(0.1, 'reward of the first visit to an observation', at_least=0)
  unrolls_per_item = 1  # As nodes between tables need.
  tables = (PLAYED,)


def add_novelty(program, config, parts):
  sources = (BatchPart(PLAYED, len(parts.replay)),)  # One unroll of each replay server at a time.
  seed = config.root_seed.child('novelty')
  options = TransformOptions('novelty/0', sources, UNROLLS, config.update_period, seed)
  node = lp.PyClassNode(NOVELTY, *parts, options, scale=config.novelty)
  program.add_node(node, label='novelty')


def make_program(config):
  queues = tables.all_tables(make_queue(config, PLAYED), make_queue(config))
  return sebulba.make_graph('curious', config, make_agent(config), queues, add_nodes=add_novelty)


def placement(config):
  return sebulba.placement(config) | {'novelty': Resources(restart='on_failure')}
