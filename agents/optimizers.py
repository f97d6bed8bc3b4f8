"""Optimizers of the agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from agents import counters
from agents.optimizer_config import OptimizerConfig
from agents.types import Array, Nest


def clip_gradients(
  optimizer: optax.GradientTransformation, max_norm: float
) -> optax.GradientTransformation:
  """Returns the optimizer with gradients clipped to a global norm; 0 for no clipping."""
  if max_norm > 0.0:
    return optax.chain(optax.clip_by_global_norm(max_norm), optimizer)
  return optimizer


def make_schedule(config: OptimizerConfig) -> optax.Schedule:
  """Returns the learning rate as a function of completed learner steps.

  In step t = 0, 1, .. of W warm-up steps it is (t + 1) / W of the configured one. It decays from step W
  to 0 in step `learning_rate_decay_steps`, and stays there.
  """
  peak, warmup = config.learning_rate, config.learning_rate_warmup_steps
  steps = config.learning_rate_decay_steps - warmup
  if config.learning_rate_schedule == 'linear':
    schedule = _zero_from(steps, optax.linear_schedule(peak, 0.0, steps))
  elif config.learning_rate_schedule == 'cosine':
    schedule = _zero_from(steps, optax.cosine_decay_schedule(peak, steps))
  else:
    schedule = optax.constant_schedule(peak)
  if not warmup:
    return schedule
  rise = optax.linear_schedule(0.0, peak, warmup)
  return optax.join_schedules([lambda step: rise(step + 1), schedule], [warmup])


def _zero_from(steps: int, schedule: optax.Schedule) -> optax.Schedule:
  """Returns the schedule with exactly 0 from `steps` on, where XLA's rounding may leave less than 0."""
  return lambda step: jnp.where(step < steps, schedule(step), 0.0)


def make_optimizer(
  config: OptimizerConfig, gradient_steps: int = 1
) -> optax.GradientTransformation:
  """Returns clipping by global norm, if any, then Adam, AdamW, RAdam or RMSProp on the schedule.

  Args:
    config: the optimizer's options.
    gradient_steps: gradient steps in one learner step; the learning rate is the same in all of them.
  """
  schedule = make_schedule(config)

  def rate(count: optax.Numeric) -> optax.Numeric:
    return schedule(count // gradient_steps)

  adam = rate, config.adam_b1, config.adam_b2, config.adam_eps
  if config.optimizer == 'radam':
    optimizer = optax.radam(*adam)
  elif config.optimizer == 'adam':
    decay = config.weight_decay
    optimizer = optax.adamw(*adam, weight_decay=decay) if decay else optax.adam(*adam)
  else:
    inside = config.rmsprop_eps_place == 'inside'
    optimizer = optax.rmsprop(
      rate,
      config.rmsprop_decay,
      config.rmsprop_eps,
      initial_scale=float(inside),  # TensorFlow's mean of squares begins at 1, PyTorch's at 0.
      eps_in_sqrt=inside,
    )
  return clip_gradients(optimizer, config.max_gradient_norm)


class Optimizer:
  """Takes an agent's gradient steps: those of `make_optimizer`."""

  def __init__(self, config: OptimizerConfig, gradient_steps: int = 1):
    """Initialises the optimizer; the arguments are those of `make_optimizer`."""
    self._transformation = make_optimizer(config, gradient_steps)
    self._schedule = make_schedule(config)

  def init(self, params: Nest) -> optax.OptState:
    """Returns the state before the first step."""
    return self._transformation.init(params)

  def step(
    self, gradients: Nest, opt_state: optax.OptState, params: Nest
  ) -> tuple[Nest, optax.OptState, Array]:
    """Takes a step.

    Args:
      gradients: of the loss by the parameters, not clipped yet.
      opt_state: the state before the step.
      params: the parameters before the step.

    Returns:
      The parameters and the state after it, and the global norm of the gradients, float32 `[]`.
    """
    updates, opt_state = self._transformation.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, optax.tree.norm(gradients)

  def learning_rate(self, learner_steps: Array) -> Array:
    """Returns the learning rate after `learner_steps` completed learner steps, float32 `[]`."""
    return jnp.asarray(self._schedule(counters.saturated(learner_steps)), jnp.float32)


def with_count(opt_state: optax.OptState, gradient_steps: int) -> optax.OptState:
  """Returns the state of an optimizer whose learning rate is that after `gradient_steps`.

  Its moments stay, and so does the count of their bias correction.
  """

  def moved(state: Any) -> Any:
    # optax's own count stays at its largest value too.
    count = min(gradient_steps, np.iinfo(state.count.dtype).max)
    return state._replace(count=np.asarray(count, state.count.dtype))

  return _map_schedules(moved, opt_state)


def with_counts_of(opt_state: optax.OptState, other: optax.OptState) -> optax.OptState:
  """Returns the state of an optimizer whose learning rate is where that of another one is.

  Args:
    opt_state: keeps its moments and the count of their bias correction.
    other: of the same optimizer.
  """
  return _map_schedules(lambda _, other: other, opt_state, other)


def _map_schedules(change: Callable[..., Any], *opt_states: optax.OptState) -> optax.OptState:
  """Returns the first of some states of an optimizer, with `change` applied to those of its schedule."""

  def is_schedule(state: Any) -> bool:
    return isinstance(state, optax.ScaleByScheduleState)

  def changed(first: Any, *others: Any) -> Any:
    return change(first, *others) if is_schedule(first) else first

  return jax.tree.map(changed, *opt_states, is_leaf=is_schedule)
