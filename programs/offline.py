"""Learning from recorded transitions alone: behaviour cloning, AVRIL or QT-Opt, without actors.

replay_loader  --recorded transitions-->  replay x K  --batches-->  learner
evaluator      --get_variables-->         learner
all nodes      --report-->                monitor

The learner counts each transition of a batch as an actor step, so num_steps is what a run learns from.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import launchpad as lp

from agents.avril.config import AVRILConfig
from agents.bc.config import BCConfig
from agents.qt_opt.config import QTOptConfig
from environments import registry as environments
from launchers.placement import Resources
from launchers.program import Program
from nodes.runtime.options import RunOptions
from programs.options import presets
from programs.options.agent_choice import Variant
from programs.options.common import Expected
from programs.options.offline import OnlyRecordedOptions, check_agent
from programs.options.preset_choice import OTHERS
from programs.options.replay_config import ReplayConfig
from programs.parts import default_placement, monitoring, offline
from programs.parts.agent_constructors import make_agent
from programs.parts.graph_parts import GraphParts
from programs.parts.launchpad_nodes import Deferred
from programs.parts.learner import add_learner
from programs.parts.replay import add_replay

# Deadline of a call in seconds, after which it is retried; see nodes.runtime.rpc.
CALL_TIMEOUT = 30


@dataclasses.dataclass(frozen=True)
class Config(ReplayConfig):
  """The options of a run on recorded data, of behaviour cloning unless `AGENTS` says otherwise."""

  run: RunOptions = RunOptions(agent='bc')
  replay: OnlyRecordedOptions = OnlyRecordedOptions()
  agent: Any = BCConfig()

  @property
  def steps_per_update(self) -> int:
    """The transitions of a batch."""
    return self.replay.batch_size

  def expected(self) -> Expected:
    """Returns what num_steps amount to."""
    updates = math.ceil(self.run.num_steps / self.replay.batch_size)
    return Expected(updates, updates, 0)

  def _check(self) -> None:
    check_agent(self.agent)


# Options per family of environments; they override the defaults, and flags override them. The network is
# that of PPO's presets, so that PPO can begin with the parameters; num_steps are 5,000 batches.
_NETWORK = ('mlp_sizes', 'activation', 'init')
_CONTROL = (*_NETWORK, 'policy_std', 'separate_critic')
_RUN = {'learning_rate': 1e-3, 'learning_rate_schedule': 'linear', 'num_steps': 320_000}
_SMALL = _RUN | presets.taken(presets.PPO_SMALL, *_NETWORK)
_MUJOCO = _RUN | presets.taken(presets.PPO_MUJOCO, *_CONTROL, 'normalize_observations')
PRESETS = {
  'atari': _RUN | {'init': 'orthogonal'},
  'minatar': _RUN | {'init': 'orthogonal'},
  'gymnasium:Pendulum-v1': _RUN | presets.taken(presets.PPO_CONTINUOUS, *_CONTROL),
  **{f'gymnasium:{task}-v5': _MUJOCO for task in presets.MUJOCO},
  'dm_control': _MUJOCO,
  OTHERS: _SMALL,
}
# QT-Opt's without what fills replay, for as many updates as in a run of 20,000 steps.
_QT_OPT = ('mlp_sizes', 'discount', 'reward_scale', 'learning_rate', 'averaging')
_QT_OPT_SMALL = presets.taken(presets.QT_OPT_SMALL, *_QT_OPT, 'target_update_period')
AGENTS = {
  'bc': Variant(Config(), PRESETS),
  'avril': Variant(Config(agent=AVRILConfig()), {OTHERS: _SMALL}),
  'qt_opt': Variant(Config(agent=QTOptConfig()), {OTHERS: _QT_OPT_SMALL | {'num_steps': 640_000}}),
}


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  program = Program('offline')
  parts = make_agent(config), environments.maker(config.run.env, config.run.env_options)
  found = offline.recorded(config.replay)
  monitor = monitoring.add_monitor(program, config, CALL_TIMEOUT)
  table = offline.make_table(found, config.replay.num_replay_shards)
  replay = add_replay(program, config, monitor, table)
  learner = add_learner(program, config, *parts, replay, monitor, CALL_TIMEOUT, num_fetching=1)
  offline.add_loader(found, program, config, GraphParts(*parts, learner, replay, monitor))
  monitoring.add_evaluator(
    program,
    config,
    monitor,
    Deferred('nodes.evaluation.fetched', 'FetchingPlayer'),
    *parts,
    learner,
    roles=['evaluator', 'inference'],
    receives={'parameters': 'learner'},
  )
  return program


def placement(config: Config) -> dict[str, Resources]:
  """Returns the resources of each group: the learner on the accelerator, the rest on CPUs."""
  restart = default_placement.restart_of_learner(config)
  return default_placement.placement(
    replay=Resources(restart=restart),
    learner=default_placement.on_accelerator(
      config, 1 + max(config.learning.learner_devices), restart=restart
    ),
    **offline.placement(config.replay),
  )
