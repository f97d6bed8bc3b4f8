"""Searches in the learned model, by mctx.

mctx takes one key for a batch, so there an answer depends on its place in the batch. Here each
environment is searched for in a batch of one with a key of its own, under `jax.vmap`: an answer depends
on its own environment only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx

from agents import counters
from agents.muzero.config import MuZeroConfig
from agents.types import Array, Nest


class Root(NamedTuple):
  """What the network says of the states that are searched from, `[B, ...]`, or of one of them."""

  prior_logits: Array  # float32 `[B, A]`.
  value: Array  # float32 `[B]`, in units of return.
  state: Array  # float32 `[B, ...]`, hidden.


class SearchResult(NamedTuple):
  """The result of searches, `[B, ...]`, or of one."""

  action: Array  # int32 `[B]`.
  policy: Array  # float32 `[B, A]`; each sums to 1.
  value: Array  # float32 `[B]`, in units of return; see the option `search_value`.


# Maps (params, hidden states `[N, ...]`, actions int `[N]`) to the rewards `[N]` and the root of the
# states after them.
Model = Callable[[Nest, Array, Array], tuple[Array, Root]]


def search(
  config: MuZeroConfig,
  model: Model,
  params: Nest,
  root: Root,
  exploration: Array,
  temperature: Array,
  keys: Array,
  illegal: Array | None = None,
  in_turns: bool = False,
) -> SearchResult:
  """Searches from each state of a batch.

  gumbel (Gumbel MuZero, sections 3 to 5) samples actions at the root without replacement, by Gumbel
  noise times exploration, and halves them by value. It acts by the best, and its policy is
  softmax(logits + (c_visit + max N) c_scale q). Here q are the values of the actions, v_mix for those
  without a visit, rescaled to [0, 1] between the smallest and the largest.

  puct (MuZero, appendix B) adds Dirichlet noise to the prior of the legal actions at the root, times
  exploration. Its policy is the share of visits. It acts by visits^(1 / temperature), or by the most
  visited action where exploration is 0. It rescales values between those of a node and its children;
  MuZero, of the whole tree.

  Args:
    config: the options of the search.
    model: the learned model.
    params: of the model.
    root: of the states.
    exploration: float32 `[B]`, factor of the noise: 1 in training, 0 in evaluation.
    temperature: float32 `[]`, of the visits; gumbel has none.
    keys: `[B]` typed PRNG keys.
    illegal: bool `[B, A]`, which actions are illegal at the root; None if all are legal.
    in_turns: whether two players move in turn, so that values change their sign at every step.
  """
  step_discount = -config.discount if in_turns else config.discount

  def recurrent(
    params: Nest, key: Array, action: Array, state: Array
  ) -> tuple[mctx.RecurrentFnOutput, Array]:
    del key
    reward, after = model(params, state, action)
    discount = jnp.full_like(reward, step_discount)
    output = mctx.RecurrentFnOutput(
      reward=reward, discount=discount, prior_logits=after.prior_logits, value=after.value
    )
    return output, after.state

  def one(root: Root, exploration: Array, key: Array, illegal: Array | None) -> SearchResult:
    noise = config.dirichlet_fraction * exploration
    if config.search == 'puct' and illegal is not None:  # mctx's noise ignores the mask.
      key, noise_key = jax.random.split(key)
      prior = with_noise(root.prior_logits, ~illegal, noise, config.dirichlet_alpha, noise_key)
      root, noise = root._replace(prior_logits=prior), jnp.zeros_like(noise)
    batch_of_one, illegal = jax.tree.map(lambda x: x[None], (root, illegal))
    inputs = (
      params,
      key,
      mctx.RootFnOutput(
        prior_logits=batch_of_one.prior_logits,
        value=batch_of_one.value,
        embedding=batch_of_one.state,
      ),
      recurrent,
      config.num_simulations,
      illegal,
    )
    output: Any
    if config.search == 'gumbel':
      output = mctx.gumbel_muzero_policy(
        *inputs,
        qtransform=functools.partial(
          mctx.qtransform_completed_by_mix_value,
          value_scale=config.gumbel_value_scale,
          maxvisit_init=config.gumbel_maxvisit,
        ),
        max_num_considered_actions=min(config.max_considered_actions, root.prior_logits.size),
        gumbel_scale=exploration,
      )
    else:
      output = mctx.muzero_policy(
        *inputs,
        dirichlet_fraction=noise,
        dirichlet_alpha=config.dirichlet_alpha,
        pb_c_init=config.puct_c1,
        pb_c_base=config.puct_c2,
        temperature=temperature * exploration,
      )
    summary = output.search_tree.summary()
    action, policy = output.action[0].astype(jnp.int32), output.action_weights[0]
    value = {
      'mean': summary.value[0],
      'chosen': summary.qvalues[0, action],
      'network': root.value,
    }[config.search_value]
    return SearchResult(action, policy, value)

  mask = None if illegal is None else 0
  return jax.vmap(one, in_axes=(0, 0, 0, mask))(root, exploration, keys, illegal)


def with_noise(
  prior_logits: Array, legal: Array, fraction: Array, alpha: float, key: Array
) -> Array:
  """Returns the logits `[A]` of (1 - fraction) times the prior plus fraction times Dirichlet noise.

  Both are distributions over the legal actions (MuZero, appendix B).

  Args:
    prior_logits: float32 `[A]`.
    legal: bool `[A]`, true for one action at least.
    fraction: float32 `[]`, of the noise.
    alpha: concentration of the noise.
    key: a typed PRNG key.
  """
  prior = jax.nn.softmax(prior_logits, where=legal)
  noise = jax.nn.softmax(jax.random.loggamma(key, alpha, legal.shape), where=legal)
  mixed = (1.0 - fraction) * prior + fraction * noise
  return jnp.log(jnp.maximum(mixed, jnp.finfo(jnp.float32).tiny))


def temperature(config: MuZeroConfig, learner_steps: Array) -> Array:
  """Returns the temperature of visits after `learner_steps`, float32 `[]`: 1, 0.5, then 0.25.

  It stays 1 if `temperature_decay_steps` is 0.
  """
  steps = config.temperature_decay_steps
  if not steps:
    return jnp.float32(1.0)
  progress = counters.saturated(learner_steps) / steps
  return jnp.where(progress < 0.5, 1.0, jnp.where(progress < 0.75, 0.5, 0.25))
