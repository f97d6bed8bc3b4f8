"""Converts a learner's state to the bytes of a checkpoint and back."""

from __future__ import annotations

from typing import Any

import jax
from flax import serialization

from rundir.checkpoints import Checkpoint, UnusableCheckpoint


def serialise(state: Any) -> bytes:
  """Returns a nest of NumPy arrays as bytes."""
  return serialization.to_bytes(state)


def restore(checkpoint: Checkpoint, template: Any) -> Any:
  """Returns the state in a checkpoint.

  Args:
    checkpoint: from `newest` or `read`.
    template: a state of the same structure.

  Raises:
    UnusableCheckpoint: if the checkpoint is from a different agent or network; one sentence.
  """
  try:
    state = serialization.msgpack_restore(checkpoint.state)
  except ValueError as error:
    raise UnusableCheckpoint(f'{checkpoint.path} holds no learner state ({error}).') from error
  return fit(checkpoint.path, template, state)


def fit(path: str, template: Any, state: Any) -> Any:
  """Converts a state that flax has read from a file to the structure of a template.

  Args:
    path: of the file, for errors.
    template: a state of the same structure; its leaves have a shape and a dtype.
    state: nested dictionaries of arrays.

  Raises:
    UnusableCheckpoint: if the state is from a different agent or network; one sentence.
  """
  advice = 'it was made by another config; resume with the options of its own run.'
  try:
    fitted = serialization.from_state_dict(template, state)
  except (ValueError, KeyError, TypeError) as error:
    raise UnusableCheckpoint(f'{path} does not fit this agent: {advice} ({error})') from error
  wanted, _ = jax.tree_util.tree_flatten_with_path(template)
  for (where, leaf), found in zip(wanted, jax.tree.leaves(fitted), strict=True):
    if found.shape != leaf.shape or found.dtype != leaf.dtype:
      raise UnusableCheckpoint(
        f'{path} has {found.dtype}{list(found.shape)} for {jax.tree_util.keystr(where)}, '
        f'which here is {leaf.dtype}{list(leaf.shape)}: {advice}'
      )
  return fitted
