"""A program: Sebulba in the corridor, with the agent and the node from the files beside it."""

import dataclasses
import functools
from typing import Any

import launchpad as lp

from agents.options import option
from agents.vtrace.config import VTraceConfig
from environments import user_file
from launchers.placement import Resources
from nodes.runtime.options import RunOptions
from programs import sebulba

NAMES = 'corridor.py:make', 'tempered.py:Tempered', 'histogram.py:ActionHistogram'
CORRIDOR, TEMPERED, HISTOGRAM = (user_file.named(name, beside=__file__) for name in NAMES)


@dataclasses.dataclass(frozen=True)
class TemperedConfig(VTraceConfig):
  hottest: float = option(4.0, 'temperature of the environment that explores most')


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  run: RunOptions = dataclasses.replace(sebulba.Config.run, env=str(CORRIDOR))
  agent: Any = TemperedConfig()


def add_histogram(program, monitor):
  node = lp.CourierNode(HISTOGRAM, monitor, num_actions=2)
  return program.add_node(node, label='histogram', receives={'copies of unrolls': 'inference'})


def make_agent(config):
  return functools.partial(TEMPERED, config.agent)


def make_program(config):
  return sebulba.make_graph('mine', config, make_agent(config), add_observer=add_histogram)


def placement(config):
  histogram = Resources(cpus=0, restart='on_failure', uses_run_dir=False)
  return {**sebulba.placement(config), 'histogram': histogram}
