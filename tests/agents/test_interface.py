"""What holds for every agent."""

import importlib

import pytest

from agents.options import leaves
from tests.agents.subprocesses import run_python

AGENTS = {
  'evolution': ('Evolution', 'EvolutionConfig'),
  'avril': ('AVRIL', 'AVRILConfig'),
  'bc': ('BC', 'BCConfig'),
  'intrinsic_rewards': ('IntrinsicRewards', 'IntrinsicRewardsConfig'),
  'muzero': ('MuZero', 'MuZeroConfig'),
  'vtrace': ('VTrace', 'VTraceConfig'),
  'ppo': ('PPO', 'PPOConfig'),
  'pqn': ('PQN', 'PQNConfig'),
  'qt_opt': ('QTOpt', 'QTOptConfig'),
  'r2d2': ('R2D2', 'R2D2Config'),
  'sac': ('SAC', 'SACConfig'),
}


def _load(name):
  """Returns an agent's class and its config's."""
  agent, config = AGENTS[name]
  return (
    getattr(importlib.import_module(f'agents.{name}.agent'), agent),
    getattr(importlib.import_module(f'agents.{name}.config'), config),
  )


@pytest.mark.parametrize('name', AGENTS)
def test_configs_import_no_jax(name):
  run_python(
    '-c',
    f'import sys, agents.{name}.config as c; c.{AGENTS[name][1]}().validate(); '
    'assert not {"jax", "flax", "optax", "numpy"} & set(sys.modules)',
  )


@pytest.mark.slow
@pytest.mark.parametrize('name', AGENTS)
def test_agents_import_no_heavy_package_and_building_one_starts_no_backend(name):
  agent, config = AGENTS[name]
  # On a platform that does not exist the first use of a backend raises.
  run_python(
    '-c',
    'import sys, numpy, dm_env.specs as s\n'
    f'from agents.{name}.agent import {agent}\n'
    f'from agents.{name}.config import {config}\n'
    f'continuous = "{name}" in ("qt_opt", "sac")\n'
    f'recurrent = hasattr({config}, "core") and "{name}" not in ("avril", "bc")\n'
    'options = {"core": "lstm"} if recurrent and not continuous else {}\n'
    'actions = (s.BoundedArray((2,), numpy.float32, -1, 1) if continuous\n'
    '           else s.DiscreteArray(3))\n'
    'from agents.lifetimes import LifetimeObservation\n'
    f'stacks = hasattr({config}, "frame_stack") and "{name}" not in ("avril", "bc")\n'
    'if stacks: options["frame_stack"] = 4\n'
    f'lifetimes = "{name}" == "intrinsic_rewards"\n'
    'seen = LifetimeObservation(3) if lifetimes else s.Array((84, 84), numpy.uint8)\n'
    f'{agent}({config}(**options), seen, actions).exploration(2)\n'
    'heavy = {"tensorflow", "launchpad", "reverb", "acme", "rlax", "distrax"}\n'
    'assert not heavy & set(sys.modules)',
    JAX_PLATFORMS='nonexistent',
  )


@pytest.mark.parametrize('name', AGENTS)
def test_every_option_has_a_help_text(name):
  _, config = _load(name)
  assert all(leaf.help for leaf in leaves(config()))
