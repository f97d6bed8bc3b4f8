"""PPO as an `Agent`: discrete or continuous actions, a queue as replay."""

from __future__ import annotations

from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp

from agents import masked, minibatches
from agents.actor_critic import normalization
from agents.actor_critic.agent import ActorCritic
from agents.actor_critic.head import PolicyValue
from agents.agent import UpdateOutput
from agents.axes import swapped
from agents.metrics import mean_rho, policy_lag
from agents.minibatches import MinibatchState
from agents.ppo.config import PPOConfig
from agents.ppo.loss import explained_variance, ppo_loss
from agents.ppo.targets import generalized_advantages
from agents.rewards import scaled_rewards
from agents.types import Array, Nest, Timestep, Unroll
from agents.vtrace.targets import Targets


class Samples(NamedTuple):
  """What the loss takes: `N` samples of `L` consecutive rows each, `[N, L, ...]`.

  A sample is an unroll without its bootstrap row, or a single transition with L = 1.
  """

  timestep: Timestep
  action: Array  # As executed.
  draw: Array  # What mu sampled; see `agents.actor_critic.distributions`.
  log_mu: Array  # float32, log-probability of the draw under the policy mu that acted.
  valid: Array  # bool; false where the row is LAST, so that no transition begins there.
  value: Array  # float32, V before the update.
  target: Array  # float32, of V.
  advantage: Array  # float32.
  core_state: Nest  # `[N, ...]` per leaf, before the first row; no time axis.


class PPO(ActorCritic):
  """Proximal policy optimization with a clipped ratio (Schulman et al. 2017).

  One update is one learner step, of `num_epochs` passes over the batch in `num_minibatches` gradient
  steps each. Values, targets and advantages are computed once, with the parameters before the update.
  Equal states and batches give equal updates. A minibatch is a mean over all devices, so under
  `jax.jit` the result is the same on one device and sharded over many.
  """

  Config = PPOConfig

  def __init__(
    self,
    config: PPOConfig,
    observation_spec: Nest,
    action_spec: dm_env.specs.Array,
  ) -> None:
    super().__init__(config, observation_spec, action_spec, config.gradient_steps_per_update)
    self._config: PPOConfig = config

  def init(self, key: Array) -> MinibatchState:
    """Returns a new learner state."""
    params_key, key = jax.random.split(key)
    params, opt_state = self._init_params(params_key)
    return MinibatchState(params, opt_state, jnp.zeros((), jnp.int32), jax.random.key_data(key))

  def update(
    self, state: MinibatchState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Does one learner step.

    Args:
      state: the learner state; its buffers may be donated.
      unrolls: fields are `[B, T+1, ...]`, extras as returned by `act`. The samples, B unrolls or B * T
        transitions, are a multiple of `num_minibatches`.
      probabilities: ignored; a queue does not sample.

    Returns:
      The next state, no priorities, and metrics. Those of `loss` and `grad_norm` (before clipping)
      are means over the gradient steps. `value`, `target_value`, `advantage`, `explained_variance`,
      `rho` (pi/mu) and `behaviour_kl` are those of the parameters before the update. `gradient_steps`
      counts those of the run; `learning_rate`, `policy_lag_mean`, `policy_lag_max` and
      `return_std` are as in V-trace.
    """
    del probabilities
    weights, statistics = normalization.split(state.params)
    used, after = normalization.of_batch(statistics, unrolls, self._config.discount)
    # Targets and advantages stay those of the parameters before the update: the clipped ratio bounds how
    # far all gradient steps together move from the policy that they were estimated for.
    samples, metrics = self._samples(weights | used, unrolls)

    def loss(weights: Nest, minibatch: Samples) -> tuple[Array, dict[str, Array]]:
      return self.loss(weights | used, minibatch)  # The statistics have no gradient.

    weights, opt_state, of_steps = minibatches.learn(
      self._config, loss, self._optimizer, state, weights, samples
    )
    metrics = {
      **of_steps,
      **metrics,
      **normalization.metrics(used),
      **policy_lag(state.learner_steps, unrolls.policy_version),
    }
    state = MinibatchState(weights | after, opt_state, state.learner_steps + 1, state.key)
    return UpdateOutput(state, None, metrics)

  def _samples(self, params: Nest, unrolls: Unroll) -> tuple[Samples, dict[str, Array]]:
    """Returns the samples of a batch, and metrics of the parameters before the update."""
    config = self._config
    output, rows = self.forward(params, unrolls)
    log_mu = self.distribution.log_prob(rows.behaviour_logits, rows.draw)[:-1]
    log_rhos = self.log_ratios(output, rows)
    rhos = jnp.exp(log_rhos)
    targets = self.targets(output.value, rhos, rows.timestep, rows.valid)
    value, valid = output.value[:-1], rows.valid
    metrics = {
      'value': masked.mean(value, valid),
      'target_value': masked.mean(targets.values, valid),
      'advantage': masked.mean(targets.advantages, valid),
      'explained_variance': explained_variance(value, targets.values, valid),
      'rho': mean_rho(rhos, valid),
      'behaviour_kl': masked.mean(-log_rhos, valid),
    }
    # The loss runs the network again, whose core may receive the reward: the raw one, as in `act`.
    timestep = rows.timestep._replace(reward=swapped(unrolls.timestep.reward))
    timestep, action, draw = jax.tree.map(lambda x: x[:-1], (timestep, rows.action, rows.draw))
    samples = Samples(
      timestep=timestep,
      action=action,
      draw=draw,
      log_mu=log_mu,
      valid=valid,
      value=value,
      target=targets.values,
      advantage=targets.advantages,
      core_state=None,
    )
    core_state = normalization.without_return(unrolls.core_state)
    return minibatches.make_samples(config, samples, core_state, self.network), metrics

  def targets(self, values: Array, rhos: Array, timestep: Timestep, valid: Array) -> Targets:
    """Returns targets of values, and generalized advantages, `[T, B]`. See the base class."""
    config = self._config
    # PPO takes its batch as fresh, pi = mu, unless the correction is asked for.
    corrects = config.off_policy_correction == 'vtrace'
    return generalized_advantages(
      values,
      # Reward and discount of the transition t -> t+1 arrived with row t+1.
      scaled_rewards(config, timestep.reward[1:]),
      config.discount * timestep.discount[1:],
      rhos if corrects else jnp.ones_like(rhos),
      valid,
      lambda_=config.gae_lambda,
      rho_bar=config.rho_bar,
      c_bar=config.c_bar,
    )

  def loss(self, params: Nest, minibatch: Samples) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of a minibatch, float32 `[]`, and metrics.

    Args:
      params: weights and statistics.
      minibatch: samples, `[N, L, ...]`; the network runs over their rows from their core states.
    """
    rows = swapped(minibatch._replace(core_state=None))
    output, _ = self.network.for_loops().unroll(
      params, minibatch.core_state, rows.timestep, rows.action
    )
    return self.loss_of_output(output, rows)

  def loss_of_output(self, output: PolicyValue, rows: Samples) -> tuple[Array, dict[str, Array]]:
    """Returns the loss of logits `[L, N, P]` and values on rows `[L, N, ...]`.

    A further term is added here. `rows` have no core state.
    """
    return ppo_loss(
      self._config,
      self.distribution,
      output,
      draw=rows.draw,
      log_mu=rows.log_mu,
      valid=rows.valid,
      old_value=rows.value,
      target=rows.target,
      advantage=rows.advantage,
    )
