"""Traces an agent's functions as nodes call them, from shapes alone: nothing is computed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from acme import specs

from agents import shapes
from agents.agent import Agent
from agents.types import Nest
from nodes.unrolls.assembler import unroll_spec

_ENVIRONMENTS = 3  # In the batch of `act`.


def trace(
  agent: Agent,
  spec: specs.EnvironmentSpec,
  table: str,
  batch_size: int,
  prioritized: bool = False,
) -> None:
  """Traces `act`, and `update` on a batch of the unrolls that `act` has recorded.

  Args:
    agent: the agent.
    spec: of one environment.
    table: of replay, from which `update` learns; see `unroll_spec`.
    batch_size: unrolls in a learner batch; 0 to trace `act` alone.
    prioritized: whether replay samples by priority.

  Raises:
    ValueError: what a function returned is not what nodes take; one sentence without a period.
    Exception: any exception of the agent.
  """
  agent = _with_checked_losses(agent)
  core_state = shapes.act_inputs(agent, spec.observations, _ENVIRONMENTS).core_state
  acted = shapes.act_output(agent, spec.observations, _ENVIRONMENTS)
  _check_same('act returned the core_state', acted.core_state, core_state)
  if acted.action.shape != (wanted := (_ENVIRONMENTS, *spec.actions.shape)):
    raise ValueError(f'act returned actions {acted.action.shape}, which must be {wanted}')
  if not batch_size:
    return
  unrolls = jax.tree.map(
    lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape), x.dtype),
    unroll_spec(agent, spec, table, acted),
  )
  state = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0)))
  probabilities = jax.ShapeDtypeStruct((batch_size,), np.float32)
  updated = jax.eval_shape(agent.update, state, unrolls, probabilities)
  _check_same('update returned the state', updated.state, state)
  if prioritized:
    found = updated.priorities, jax.eval_shape(agent.initial_priorities, unrolls)
    for what, priorities in zip(('update', 'initial_priorities'), found, strict=True):
      if priorities is None or priorities.shape != (batch_size,):
        shape = 'no' if priorities is None else f'{priorities.shape}'
        raise ValueError(
          f'{what} returned {shape} priorities; this program samples by priority, so they must be '
          f'float32 ({batch_size},)'
        )
  for name, metric in updated.metrics.items():
    if metric.shape:
      raise ValueError(f'update returned the metric {name} of shape {metric.shape}, not a scalar')


def _check_same(what: str, found: Nest, wanted: Nest) -> None:
  """Raises ValueError if a nest has other leaves than the one that the next call takes."""
  here, there = _leaves(found), _leaves(wanted)
  for place in sorted(here.keys() | there.keys()):
    if here.get(place) != there.get(place):
      raise ValueError(
        f'{what} with {here.get(place, "nothing")} at {place or "its root"}, which must be '
        f'{there.get(place, "nothing")} as before'
      )


def _leaves(nest: Nest) -> dict[str, str]:
  leaves, _ = jax.tree_util.tree_flatten_with_path(nest)
  return {jax.tree_util.keystr(place): f'{x.dtype}{[*x.shape]}' for place, x in leaves}


def _with_checked_losses(agent: Agent) -> Agent:
  """Returns the agent with the methods that return a loss checked, where JAX would name none of them."""
  checked = copy.copy(agent)
  for name in ('loss', 'loss_of_output'):
    if hasattr(agent, name):
      setattr(checked, name, functools.partial(_loss, name, getattr(checked, name)))
  return checked


def _loss(name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
  returned = method(*args, **kwargs)
  if not isinstance(returned, tuple) or len(returned) != 2:
    raise ValueError(f'{name} returned {_described(returned)}, which must be (loss, metrics)')
  if not isinstance(returned[0], (float, jax.Array)) or jnp.shape(returned[0]) != ():
    raise ValueError(
      f'{name} returned the loss {_described(returned[0])}, which must be a single number'
    )
  return returned


def _described(value: Any) -> str:
  if isinstance(value, jax.Array):
    return f'{value.dtype}{list(value.shape)}'
  return f'a {type(value).__name__}'
