"""The shapes of what an agent takes and returns, from its functions alone: nothing is computed."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from agents.agent import ActOutput, Agent
from agents.types import Nest, Timestep


class ActInputs(NamedTuple):
  """What `Agent.act` takes besides parameters: `jax.ShapeDtypeStruct`s."""

  core_state: Nest
  timestep: Timestep
  exploration: Any
  keys: Any


def params(agent: Agent) -> Nest:
  """Returns the parameters of an agent as `jax.ShapeDtypeStruct`s."""
  return jax.eval_shape(lambda key: agent.init(key).params, _key())


def act_inputs(agent: Agent, observation_spec: Nest, batch_size: Any) -> ActInputs:
  """Returns the inputs of `act`.

  Args:
    agent: the agent.
    observation_spec: of one observation, a nest.
    batch_size: B, which may be symbolic, as in `jax.export`.
  """

  def rows(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((batch_size, *shape), dtype)

  core_state = jax.eval_shape(lambda: agent.initial_core_state(1))
  return ActInputs(
    core_state=jax.tree.map(lambda x: rows(x.shape[1:], x.dtype), core_state),
    timestep=Timestep(
      step_type=rows((), np.uint8),
      reward=rows((), np.float32),
      discount=rows((), np.float32),
      observation=jax.tree.map(lambda spec: rows(spec.shape, spec.dtype), observation_spec),
    ),
    exploration=rows((), np.float32),
    keys=rows((), _key().dtype),
  )


def act_output(agent: Agent, observation_spec: Nest, batch_size: int) -> ActOutput:
  """Returns the output of `act` as `jax.ShapeDtypeStruct`s; exceptions of the agent propagate."""
  inputs = act_inputs(agent, observation_spec, batch_size)
  return jax.eval_shape(agent.act, params(agent), *inputs)


def _key() -> Any:
  return jax.eval_shape(lambda: jax.random.key(0))
