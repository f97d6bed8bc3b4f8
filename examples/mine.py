"""A program: Sebulba in the corridor, with the node from the file beside it."""

import dataclasses

import launchpad as lp

from agents.options import option
from environments import user_file
from launchers.placement import Resources
from programs import sebulba
from programs.parts.replay import make_queue

CORRIDOR = user_file.named('corridor.py:make', beside=__file__)
HISTOGRAM = user_file.named('histogram.py:ActionHistogram', beside=__file__)
make_agent = sebulba.make_agent  # The agent of --agent.


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  env: str = option(str(CORRIDOR), 'environment')


def add_histogram(program, monitor):
  return program.add_node(lp.CourierNode(HISTOGRAM, monitor, num_actions=2), label='histogram')


def make_program(config):
  parts = make_agent(config), make_queue(config)
  return sebulba.make_graph('mine', config, *parts, add_observer=add_histogram)


def placement(config):
  histogram = Resources(cpus=0, restart='on_failure', uses_run_dir=False)
  return {**sebulba.placement(config), 'histogram': histogram}
