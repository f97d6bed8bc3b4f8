"""An agent whose computation takes a set time and hardly any CPU, as on a fast accelerator."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np

from agents.agent import ActOutput, Agent, UpdateOutput
from agents.metrics import policy_lag
from agents.types import Array, Nest, Timestep, Unroll

# Name of the custom call.
_SLEEP = 'simulated_sleep'


class SimulatedState(NamedTuple):
  """The learner state: no parameter has an effect. `params` has float32 `[P]`."""

  params: Nest
  learner_steps: Array  # int32 `[]`.


def _register_sleep() -> None:
  """Makes the C library's nanosleep a custom call of XLA.

  A callback into Python would take the interpreter lock twice, for which no accelerator waits. As a
  custom call, nanosleep gets its output as the time to sleep: the output is the input's buffer.
  """
  capsule = ctypes.pythonapi.PyCapsule_New
  capsule.restype = ctypes.py_object
  capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
  address = ctypes.cast(ctypes.CDLL(None).nanosleep, ctypes.c_void_p)
  target = capsule(address, b'xla._CUSTOM_CALL_TARGET', None)
  jax.ffi.register_ffi_target(_SLEEP, target, platform='cpu', api_version=0)


_register_sleep()


def _wait(seconds: float, after: Array) -> Array:
  """Returns 0, `seconds` after `after` is available; float32 `[]`."""
  if not seconds:
    return jnp.zeros(())
  whole, rest = divmod(round(1e9 * seconds), 1_000_000_000)
  timespec = np.array([whole, rest], np.int64).view(np.int32)  # JAX has no int64 by default.
  timespec, _ = jax.lax.optimization_barrier((jnp.asarray(timespec), after))
  slept = jax.ffi.ffi_call(
    _SLEEP,
    jax.ShapeDtypeStruct(timespec.shape, timespec.dtype),
    input_output_aliases={0: 0},
    custom_call_api_version=1,
  )(timespec)
  return jnp.where(slept[0] < 0, 1.0, 0.0)


class Simulated(Agent):
  """Rows and unrolls have V-trace's fields. Actions follow from the observations."""

  def __init__(
    self,
    unroll_length: int,
    inference_seconds: float,
    update_seconds: float,
    num_params: int,
    observation_spec: Nest,
    action_spec: dm_env.specs.DiscreteArray,
  ):
    """Initialises the agent.

    Args:
      unroll_length: transitions in an unroll.
      inference_seconds: of a batch of any size.
      update_seconds: of a learner step.
      num_params: P; so many float32 are the gradient, which replicas sum in each update.
      observation_spec: of one observation.
      action_spec: of one action.
    """
    del observation_spec
    self.unroll_rows, self.unroll_period = unroll_length + 1, unroll_length
    self._inference_seconds, self._update_seconds = inference_seconds, update_seconds
    self._num_params = num_params
    self._num_actions = action_spec.num_values

  def init(self, key: Array) -> SimulatedState:
    """Returns a new learner state."""
    del key
    return SimulatedState({'unused': jnp.zeros(self._num_params)}, jnp.zeros((), jnp.int32))

  def initial_core_state(self, batch_size: int) -> Nest:
    """Returns an empty nest."""
    del batch_size
    return {}

  def exploration(self, num_environments: int) -> np.ndarray:
    """Returns zeros."""
    return np.zeros(num_environments, np.float32)

  def act(
    self, params: Nest, core_state: Nest, timestep: Timestep, exploration: Array, keys: Array
  ) -> ActOutput:
    """Chooses actions by one pixel of each observation, of a nest by one of its first array."""
    del params, exploration, keys
    first = jax.tree.leaves(timestep.observation)[0]
    pixels = first.reshape(timestep.reward.shape[0], -1)[:, 0].astype(jnp.int32)
    waited = _wait(self._inference_seconds, pixels[0]).astype(jnp.int32)
    logits = jnp.zeros((pixels.shape[0], self._num_actions))
    action = pixels % self._num_actions + waited
    return ActOutput(action, {'behaviour_logits': logits}, core_state)

  def update(
    self, state: SimulatedState, unrolls: Unroll, probabilities: Array | None = None
  ) -> UpdateOutput:
    """Reads one reward of each unroll; the gradient is a sum over the batch, at hardly any cost."""
    del probabilities
    # First the computation, which needs no other device, then the sums over all of them.
    waited = _wait(self._update_seconds, state.learner_steps)
    rewards = unrolls.timestep.reward[:, 0] + waited
    # Each unroll adds to one element that the data choose, so devices can only sum whole gradients.
    places = rewards.astype(jnp.int32) % self._num_params
    gradient = jnp.zeros(self._num_params).at[places].add(rewards)
    metrics = {'loss': jnp.mean(rewards), **policy_lag(state.learner_steps, unrolls.policy_version)}
    params = {'unused': state.params['unused'] + gradient}
    next_state = SimulatedState(params, state.learner_steps + 1)
    return UpdateOutput(next_state, None, metrics)
