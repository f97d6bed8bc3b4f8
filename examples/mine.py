"""A program: Sebulba in the corridor, with the agent and the node from the files beside it."""

import dataclasses
import functools

import launchpad as lp

from agents.options import option
from environments import user_file
from launchers.placement import Resources
from programs import sebulba
from programs.parts.replay import make_queue

NAMES = 'corridor.py:make', 'tempered.py:Tempered', 'histogram.py:ActionHistogram'
CORRIDOR, TEMPERED, HISTOGRAM = (user_file.named(name, beside=__file__) for name in NAMES)


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  env: str = option(str(CORRIDOR), 'environment')
  hottest: float = option(4.0, 'temperature of the environment that explores most')


def add_histogram(program, monitor):
  node = lp.CourierNode(HISTOGRAM, monitor, num_actions=2)
  return program.add_node(node, label='histogram', receives={'copies of unrolls': 'inference'})


def make_agent(config):
  return functools.partial(TEMPERED, config)


def make_program(config):
  parts = make_agent(config), make_queue(config)
  return sebulba.make_graph('mine', config, *parts, add_observer=add_histogram)


def placement(config):
  histogram = Resources(cpus=0, restart='on_failure', uses_run_dir=False)
  return {**sebulba.placement(config), 'histogram': histogram}
