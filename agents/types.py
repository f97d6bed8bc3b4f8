"""Rows, unrolls, and the time index of each of their fields.

A *row* is one timestep of one environment. It follows dm_env exactly, LAST rows included. Row `t` holds

    step_type[t], reward[t], discount[t], observation[t]
        one timestep from the environment. reward[t] and discount[t] *arrived with*
        observation[t]: they belong to the transition from row t-1 into row t. They are 0 and 1
        where step_type[t] is FIRST.
    action[t], extras[t]
        the agent's output for observation[t]. In a LAST row the environment ignores the action.
    policy_version[t]
        the number of learner steps that produced the parameters which chose action[t].

An observation is an array, or a nest of arrays of different shapes and dtypes: a dictionary or tuple of
nests. Its leaves have the leading axes of the row. `agents.action_mask` documents the one key with a
meaning of its own.

The transition t -> t+1 therefore pairs observation[t], action[t] with reward[t+1], discount[t+1],
observation[t+1]. If step_type[t] is LAST, t -> t+1 is not a transition: row t+1 is the FIRST of another
episode. It carries no loss, and no return or gradient crosses it. Termination is LAST with discount 0,
truncation is LAST with discount 1: bootstrap from the value of the LAST observation times its discount.
Where two players move in turn, MID rows have discount -1; see `agents.turns`.

An *unroll* is a fixed number `L` of consecutive rows of one environment, across episode ends. Its last
row only bootstraps. `core_state` is the agent's state *before* row 0 was consumed. Rewards are raw: the
loss clips and rescales them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# A NumPy or JAX array, and a nest (tuple, dict, NamedTuple) of them.
Array = Any
Nest = Any

# The values of dm_env.StepType in `step_type` fields.
FIRST = np.uint8(0)
MID = np.uint8(1)
LAST = np.uint8(2)


class Timestep(NamedTuple):
  """The environments' half of a row. Leading axes are `[B]` or `[T, B]`."""

  step_type: Array  # uint8: FIRST, MID or LAST.
  reward: Array  # float32, raw; 0 at FIRST.
  discount: Array  # float32; 1 at FIRST.
  observation: Nest  # The environment's shapes and dtypes.


class Unroll(NamedTuple):
  """`L` consecutive rows of one environment; a batch prepends `[B]` to every shape below."""

  timestep: Timestep  # Fields are `[L, ...]`.
  action: Array  # `[L, ...]`, the action as executed.
  extras: dict[str, Array]  # `[L, ...]` each, the agent's own; V-trace: behaviour_logits.
  policy_version: Array  # int32 `[L]`.
  core_state: Nest  # `[...]` per leaf, before row 0 was consumed; no time axis.
  environment_id: Array  # int32 `[]`, unique over all actors of the program.
