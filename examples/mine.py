"""A program: Sebulba in the corridor, with the node from the file beside it."""

import dataclasses

import launchpad as lp

from environments import user_file
from launchers.placement import Resources
from nodes.runtime.options import RunOptions
from programs import sebulba

CORRIDOR = user_file.named('corridor.py:make', beside=__file__)
HISTOGRAM = user_file.named('histogram.py:ActionHistogram', beside=__file__)
make_agent = sebulba.make_agent  # The agent of --agent.


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  run: RunOptions = dataclasses.replace(sebulba.Config.run, env=str(CORRIDOR))


def add_histogram(program, monitor):
  node = lp.CourierNode(HISTOGRAM, monitor, num_actions=2)
  return program.add_node(node, label='histogram', receives={'copies of unrolls': 'inference'})


def make_program(config):
  return sebulba.make_graph('mine', config, make_agent(config), add_observer=add_histogram)


def placement(config):
  histogram = Resources(cpus=0, restart='on_failure', uses_run_dir=False)
  return {**sebulba.placement(config), 'histogram': histogram}
