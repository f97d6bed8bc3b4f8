"""R2D2 whose unrolls begin with a zero recurrent state, for a test: a program file."""

import functools

import jax
import jax.numpy as jnp

from agents.r2d2.agent import R2D2
from environments import own_file
from programs import r2d2, sebulba
from programs.parts.replay import make_prioritized

Config = r2d2.Config
PRESETS = r2d2.PRESETS
placement = r2d2.placement
ZERO_START = own_file.named('zero_start.py:ZeroStart', beside=__file__)


class ZeroStart(R2D2):
  def update(self, state, unrolls, probabilities=None):
    core_state = jax.tree.map(jnp.zeros_like, unrolls.core_state)
    return super().update(state, unrolls._replace(core_state=core_state), probabilities)


def make_agent(config):
  return functools.partial(ZERO_START, config)


def make_program(config):
  parts = make_agent(config), make_prioritized(config)
  return sebulba.make_graph('zero_start', config, *parts, config.replay_checkpoint_period)
