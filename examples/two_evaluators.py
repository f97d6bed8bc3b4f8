"""A program: Sebulba on CartPole, with a second evaluator whose episodes may be ten times as long."""

import dataclasses

from environments import registry
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.parts import monitoring
from programs.parts.launchpad_nodes import Deferred

PRESETS, make_agent = sebulba.PRESETS, sebulba.make_agent
LONG = 'long_episodes'


@dataclasses.dataclass(frozen=True)
class Config(sebulba.Config):
  run: RunOptions = dataclasses.replace(sebulba.Config.run, env='cartpole')


def add_evaluator(program, config, parts):
  monitoring.add_evaluator(
    program,
    config,
    parts.monitor,
    Deferred('nodes.evaluation.fetched', 'FetchingPlayer'),  # It computes its actions itself.
    parts.make_agent,
    registry.maker('cartpole', 'max_episode_steps=5000'),
    parts.params,
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
    label=LONG,
    options=dataclasses.replace(config.evaluation, eval_episodes=20),
  )


def make_program(config):
  return sebulba.make_graph('two_evaluators', config, make_agent(config), add_nodes=add_evaluator)


def placement(config):
  placed = sebulba.placement(config)
  return placed | {LONG: placed['evaluator']}
