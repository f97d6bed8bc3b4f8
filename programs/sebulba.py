"""Sebulba: central inference and V-trace learner on the accelerator host, a queue between them."""

from __future__ import annotations

import dataclasses
import functools

import launchpad as lp

from agents.options import option
from agents.vtrace.config import VTraceConfig
from programs import actor_learner
from programs.config import RunConfig
from programs.deferred import Deferred

placement = actor_learner.placement
environments = actor_learner.environments

# Options that suit a family of environments better than the defaults; flags override them.
PRESETS = {
  # Espeholt et al. 2018, table G.1, but for Adam and losses that are means over transitions.
  'atari': {'frame_stack': 4, 'max_abs_reward': 1.0, 'batch_size': 32, 'num_steps': 10_000_000},
}


@dataclasses.dataclass(frozen=True)
class Config(RunConfig, VTraceConfig):
  """Everything a Sebulba run can be told."""

  queue_size: int = option(
    0, 'unrolls that may wait in all replay queues of a replica together; 0: twice the batch'
  )

  def resolve(self) -> Config:
    """Returns the config with every 'choose for me' replaced by the choice."""
    config = super().resolve()
    return dataclasses.replace(config, queue_size=self.queue_size or 2 * self.batch_size)

  def validate(self) -> None:
    """Checks that the options fit together; raises ValueError, one sentence naming the flag."""
    RunConfig.validate(self)
    VTraceConfig.validate(self)
    if self.queue_size < self.batch_size:
      raise ValueError(
        f'--queue_size={self.queue_size} is smaller than --batch_size={self.batch_size}: the queue '
        'could never hold a batch; make it at least as large.'
      )


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return actor_learner.make_program(
    'sebulba',
    config,
    functools.partial(Deferred('agents.vtrace.agent', 'VTrace'), config),
    functools.partial(
      Deferred('nodes.replay', 'queue_table'), config.queue_size // config.num_replay_shards
    ),
  )
