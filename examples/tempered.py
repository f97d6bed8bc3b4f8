"""An agent: V-trace in which each environment explores at its own temperature."""

import jax
import jax.numpy as jnp
import numpy as np

from agents.agent import ActOutput
from agents.vtrace.agent import VTrace


class Tempered(VTrace):
  def exploration(self, num_environments):
    return np.geomspace(1.0, self._config.hottest, num_environments, dtype=np.float32)

  def act(self, params, core_state, timestep, exploration, keys):
    output, core_state = self.network.step(params, core_state, timestep)
    # Evaluators have temperature 0. The tempered logits are stored, so V-trace can correct for them.
    logits = output.logits / jnp.maximum(exploration, 1e-6)[:, None]
    action = jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)
    core_state = self.network.record_action(core_state, action)
    return ActOutput(action, {'behaviour_logits': logits}, core_state)
