"""SAC: soft actor-critic on continuous actions, from uniform replay at a fixed ratio.

The graph is Sebulba's, with another agent and replay table.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import launchpad as lp

from agents.sac.config import SACConfig
from nodes.inference.options import GroupedActingOptions
from nodes.runtime.options import RunOptions
from programs import sebulba
from programs.options.inference import InferenceConfig
from programs.options.preset_choice import OTHERS
from programs.options.presets import MUJOCO, SAC_MUJOCO, SAC_PENDULUM
from programs.options.rule import Rule
from programs.options.uniform import UniformOptions
from programs.parts.agent_constructors import make_agent

placement = sebulba.placement
environments = sebulba.environments


def _min_replay_size(config: Any) -> int:
  replay = config.replay
  size = max(replay.batch_size, config.playing.unrolls(config.run.num_steps // 100))
  return max(replay.num_replay_shards, min(size, replay.replay_size))


def _one_update_a_step(config: Any) -> float:
  return float(config.replay.batch_size * config.agent.unroll_length)


# An update for each transition, as in Stable-Baselines3 and CleanRL, whatever the batch. On MuJoCo both
# fill replay with 5,000 to 10,000 of a million steps first.
_RULES = {
  'min_replay_size': Rule('unrolls in 1% of num_steps, at least a batch', _min_replay_size),
  'samples_per_insert': Rule('batch_size unroll_length: an update a step', _one_update_a_step),
}
# Options per family of environments; they override the defaults, and flags override them.
PRESETS = {
  'gymnasium:Pendulum-v1': SAC_PENDULUM | _RULES,
  **{f'gymnasium:{task}-v5': SAC_MUJOCO | _RULES for task in MUJOCO},
  'dm_control': SAC_MUJOCO | _RULES,
  OTHERS: {'num_steps': 100_000} | _RULES,
}


@dataclasses.dataclass(frozen=True)
class Config(InferenceConfig):
  """The options of a SAC run."""

  run: RunOptions = RunOptions(env='gymnasium:Pendulum-v1', agent='sac')
  acting: GroupedActingOptions = GroupedActingOptions(num_actors=1, envs_per_actor=8)
  replay: UniformOptions = UniformOptions(
    batch_size=256, replay_size=1_000_000, samples_per_insert=256.0
  )
  agent: Any = SACConfig()


def make_program(config: Config) -> lp.Program:
  """Returns the program graph."""
  return sebulba.make_graph('sac', config, make_agent(config))
