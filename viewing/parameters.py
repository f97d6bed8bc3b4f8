"""Reads the saved parameters of a run: the final ones and those of its checkpoints."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import jax
from flax import serialization

from agents.agent import Agent
from agents.types import Nest
from nodes.learning import serialisation
from rundir import checkpoints, final_params
from rundir.checkpoints import UnusableCheckpoint

FINAL = 'final'
NEWEST = 'newest'


@dataclasses.dataclass(frozen=True)
class Parameters:
  """Saved parameters of a run.

  Attributes:
    path: their file.
    counts: actor_steps, environment_frames and learner_steps at the time of saving; {} if unknown.
    state: nested dictionaries of arrays, as serialised by flax.
  """

  path: str
  counts: dict[str, int]
  state: Any


def read(run_dir: str, which: str, counts: dict[str, int]) -> Parameters:
  """Reads parameters of a run.

  Args:
    run_dir: the run directory.
    which: 'final'; 'newest' for the newest checkpoint; the learner_steps of a checkpoint; '' for the
      final parameters if they exist, else the newest.
    counts: counts of the final parameters.

  Raises:
    ValueError: if they do not exist or cannot be read; one sentence.
  """
  final = final_params.path(run_dir)
  kept = checkpoints.steps(checkpoints.directory(run_dir))
  if not os.path.exists(final) and not kept:
    raise ValueError(
      f'{run_dir} has no parameters yet; the first come with its first checkpoint, after '
      '--checkpoint_period seconds of training.'
    )
  which = which or (FINAL if os.path.exists(final) else NEWEST)
  if which == FINAL and os.path.exists(final):
    with open(final, 'rb') as f:
      return Parameters(final, counts, _unpack(final, f.read()))
  if which == NEWEST and kept:
    checkpoint = checkpoints.newest(checkpoints.directory(run_dir))
    assert checkpoint is not None
  elif which.isdigit() and int(which) in kept:
    checkpoint = checkpoints.read(kept[int(which)])
  else:
    there = ([FINAL] if os.path.exists(final) else []) + list(map(str, kept))
    raise ValueError(f'--checkpoint={which} does not exist; {run_dir} has: {", ".join(there)}.')
  state = _unpack(checkpoint.path, checkpoint.state)
  # Anakin's checkpoints contain the environments in addition to the learner's state.
  return Parameters(checkpoint.path, checkpoint.counts, state.get('learner', state)['params'])


def fit(parameters: Parameters, agent: Agent) -> Nest:
  """Returns parameters in the structure that the agent expects.

  Raises:
    ValueError: if they belong to a different network; one sentence.
  """
  template = jax.eval_shape(agent.init, jax.eval_shape(lambda: jax.random.key(0))).params
  try:
    return serialisation.fit(parameters.path, template, parameters.state)
  except UnusableCheckpoint as error:
    raise ValueError(str(error)) from error


def _unpack(path: str, content: bytes) -> Any:
  try:
    state = serialization.msgpack_restore(content)
  except Exception as error:  # msgpack and its callbacks raise many types.
    raise ValueError(f'{path} is damaged: it is not complete msgpack ({error}).') from error
  if not isinstance(state, dict):
    raise ValueError(f'{path} is damaged: it holds no parameters.')
  return state
