"""Writes a policy as files that run without this repository."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from typing import Any

import dm_env.specs
import jax
import jax.export
import numpy as np

from agents import nests, shapes
from agents.agent import Agent
from agents.types import Array, Nest, Timestep
from viewing.local_policy import acting

_POLICY, _SPECS, _SCRIPT = 'policy.bin', 'policy.json', 'play.py'
_PLATFORMS = ('cpu', 'cuda', 'tpu')
_KEY_IMPL = 'threefry2x32'


def check_directory(directory: str) -> None:
  """Raises ValueError, one sentence, unless a directory can be made or is empty."""
  try:
    os.makedirs(directory, exist_ok=True)
    if os.listdir(directory):
      raise ValueError(f'--export={directory} is not empty; name a new directory.')
  except OSError as error:
    raise ValueError(f'--export={directory} cannot be written: {error.strerror}.') from error


def write(
  directory: str,
  agent: Agent,
  params: Nest,
  observation_spec: Nest,
  action_spec: dm_env.specs.Array,
  batch_size: int,
  facts: Mapping[str, Any],
) -> str:
  """Writes the policy with its parameters, its specs, and a script that acts with it.

  The policy is a `jax.export` artefact of a function for CPUs, GPUs and TPUs:

      act(core_state, step_type, reward, discount, observation, exploration, keys, count)
        -> action, core_state

  `core_state` is a list of arrays `[B, ...]`, which may begin as zeros: `act` resets it where the
  timestep is FIRST. `observation` is an array, or the list of the leaves of a nest in the order of the
  file of specs. `keys` is the data of one PRNG key for each environment, and `count` the number of
  calls before this one. The function folds it into the keys.

  Args:
    directory: must be empty.
    agent: the agent.
    params: its parameters.
    observation_spec: of one observation.
    action_spec: of one action.
    batch_size: B, if the agent's functions cannot be traced for any.
    facts: what else the file of specs says.

  Returns:
    The batch sizes that the policy takes, in a few words.

  Raises:
    ValueError: the policy cannot be exported; one sentence.
  """
  (any_size,) = jax.export.symbolic_shape('b')
  obstacles = []
  for size in (any_size, batch_size):
    try:
      exported = _export(agent, params, observation_spec, size)
      break
    except Exception as error:  # Of JAX, or of the agent, whose code may need the number.
      said, *_ = str(error).strip().split('\n')
      obstacles.append(f'{type(error).__name__}: {said}')
  else:
    raise ValueError(f'--export={directory}: the agent cannot be exported: {obstacles[-1]}')
  specs = {
    'batch_size': batch_size if obstacles else None,
    'batch_size_reason': ''.join(obstacles),
    'observation': _observation(observation_spec),
    'action': _action(action_spec),
    'core_state': _core_state(agent),
    'exploration': float(agent.evaluation_exploration),
    'key_impl': _KEY_IMPL,
    'platforms': list(exported.platforms),
    'jax': jax.__version__,
    **facts,
  }
  with open(os.path.join(directory, _SPECS), 'w') as f:
    json.dump(specs, f, indent=2)
  with open(os.path.join(directory, _POLICY), 'wb') as f:
    f.write(exported.serialize())
  shutil.copy(os.path.join(os.path.dirname(__file__), _SCRIPT), directory)
  return f'batches of {batch_size} only ({obstacles[0]})' if obstacles else 'batches of any size'


def _export(
  agent: Agent, params: Nest, observation_spec: Nest, batch_size: Any
) -> jax.export.Exported:
  """Exports the function of `write` for a batch size, which may be symbolic."""
  inputs = shapes.act_inputs(agent, observation_spec, batch_size)
  core_state, structure = jax.tree.flatten(inputs.core_state)
  key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=_KEY_IMPL)))
  keys = jax.ShapeDtypeStruct((batch_size, *key.shape), key.dtype)
  step = acting(agent)
  nest = jax.tree.structure(observation_spec)
  seen = inputs.timestep.observation
  if nests.is_nest(observation_spec):
    seen = jax.tree.leaves(seen)

  def act(
    core_state: list[Array],
    step_type: Array,
    reward: Array,
    discount: Array,
    observation: Nest,
    exploration: Array,
    keys: Array,
    count: Array,
  ) -> tuple[Array, list[Array]]:
    action, after = step(
      params,
      jax.tree.unflatten(structure, core_state),
      Timestep(step_type, reward, discount, jax.tree.unflatten(nest, jax.tree.leaves(observation))),
      exploration,
      jax.random.wrap_key_data(keys, impl=_KEY_IMPL),
      count,
    )
    return action, jax.tree.leaves(after)

  count = jax.ShapeDtypeStruct((), np.int32)
  return jax.export.export(jax.jit(act), platforms=_PLATFORMS)(
    core_state, *inputs.timestep[:3], seen, inputs.exploration, keys, count
  )


def _observation(spec: Nest) -> dict[str, Any]:
  """Returns the spec of an observation as JSON; of a nest, those of its leaves by name, in order."""
  if not nests.is_nest(spec):
    return {'shape': list(spec.shape), 'dtype': str(spec.dtype)}
  return {f'observation/{name}': _observation(leaf) for name, leaf in nests.named(spec).items()}


def _core_state(agent: Agent) -> list[dict[str, Any]]:
  """Returns the parts of the core state of one environment, in the order of the artefact."""
  core_state = jax.eval_shape(lambda: agent.initial_core_state(1))
  leaves, _ = jax.tree_util.tree_flatten_with_path(core_state)
  return [
    {
      'name': jax.tree_util.keystr(where, simple=True, separator='/'),
      'shape': list(leaf.shape[1:]),
      'dtype': str(leaf.dtype),
    }
    for where, leaf in leaves
  ]


def _action(spec: dm_env.specs.Array) -> dict[str, Any]:
  """Returns the spec of one action as JSON, with the number of its values or with its bounds."""
  found: dict[str, Any] = {'shape': list(spec.shape), 'dtype': str(spec.dtype)}
  if isinstance(spec, dm_env.specs.DiscreteArray):
    found['num_values'] = int(spec.num_values)
  elif isinstance(spec, dm_env.specs.BoundedArray):
    for name in ('minimum', 'maximum'):
      found[name] = np.broadcast_to(getattr(spec, name), spec.shape).tolist()
  return found
