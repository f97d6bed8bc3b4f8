"""An agent: V-trace in which each environment explores at its own temperature."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from agents.options import option
from agents.vtrace.agent import VTrace


class Tempered(VTrace):
  @dataclasses.dataclass(frozen=True)
  class Config(VTrace.Config):
    action_kinds = ('discrete', 'multi_discrete')
    hottest: float = option(4.0, 'temperature of the environment that explores most', above=0)

  def exploration(self, num_environments):
    return np.geomspace(1.0, self._config.hottest, num_environments, dtype=np.float32)

  def policy(self, params, output, timestep, exploration, keys):
    # Evaluators have temperature 0. The tempered logits are stored, so V-trace can correct for them.
    logits = output.logits / jnp.maximum(exploration, 1e-6)[:, None]
    output = output._replace(logits=logits)
    return super().policy(params, output, timestep, exploration, keys)
