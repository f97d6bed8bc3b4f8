"""What agents of Q-learning share: acting with a network of action values."""

from __future__ import annotations

import dm_env.specs
import jax
import numpy as np

from agents.action_mask import LegalActions
from agents.network_agent import NetworkAgent
from agents.networks.recurrent import RecurrentNetwork
from agents.q_learning.config import EpsilonConfig
from agents.q_learning.epsilon_greedy import epsilon_greedy, epsilons
from agents.types import Array, Nest, Timestep


class QLearning(NetworkAgent):
  """An agent that acts epsilon-greedily by values of discrete actions; subclasses learn them.

  Attributes:
    network: the network whose outputs are Q-values `[..., A]`.
    evaluation_exploration: the probability of a random action.
  """

  def __init__(
    self,
    config: EpsilonConfig,
    network: RecurrentNetwork,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    """Initialises what acts.

    Args:
      config: the probabilities of random actions.
      network: see the class docstring.
      observation_spec: of one observation.
      action_spec: of one action.
    """
    self.network = network
    self.evaluation_exploration = config.evaluation_epsilon
    self._epsilons = config
    self._legal = LegalActions(observation_spec, action_spec)

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns the probabilities of random actions, float32 `[num_environments]`, descending."""
    base, alpha = self._epsilons.epsilon_base, self._epsilons.epsilon_alpha
    return epsilons(num_environments, base, alpha).astype(np.float32)

  def policy(
    self, params: Nest, output: Array, timestep: Timestep, exploration: Array, keys: Array
  ) -> tuple[Array, dict[str, Array]]:
    """Acts epsilon-greedily: a uniformly random action with probability `exploration`, else argmax Q.

    Both are legal actions.

    Args:
      params: the `params` of a learner state.
      output: Q-values, float32 `[B, A]`.
      timestep: fields are `[B, ...]`.
      exploration: float32 `[B]`.
      keys: `[B]` typed PRNG keys, one for each environment.

    Returns:
      Actions int32 `[B]`, and no extras.
    """
    del params
    legal = self._legal.of(timestep.observation)
    return jax.vmap(epsilon_greedy)(keys, output, exploration, legal), {}
