"""Converts a learner's state to the bytes of a checkpoint, and its parameters to data; and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import serialization

from agents.types import Nest
from rundir.checkpoints import Checkpoint, UnusableCheckpoint
from rundir.saved_params import SavedParams

RESUME = 'it was made by another config; resume with the options of its own run.'


def serialise(state: Any) -> bytes:
  """Returns a pytree of NumPy arrays as bytes."""
  return serialization.msgpack_serialize(_state_dict(state))


def restore(checkpoint: Checkpoint, template: Any) -> Any:
  """Returns the state in a checkpoint.

  Args:
    checkpoint: from `newest` or `read`.
    template: a state of the same structure.

  Raises:
    UnusableCheckpoint: if the checkpoint is from a different agent or network; one sentence.
  """
  return _fit(checkpoint.path, template, checkpoint.state, RESUME)


def params(
  saved: SavedParams, template: Nest, advice: str = RESUME, new: Sequence[str] = ()
) -> Nest:
  """Returns saved parameters as NumPy arrays.

  Args:
    saved: from `saved_params.read`.
    template: parameters of the same structure; their leaves have a shape and a dtype.
    advice: the end of the error if they belong to a different network.
    new: entries, of parameters that are a dictionary, which are those of the template where the saved
      ones have none.

  Raises:
    UnusableCheckpoint: if they are damaged, or belong to a different network; one sentence.
  """
  return _fit(saved.path, template, saved.content, advice, new)


def to_data(params: Nest) -> Any:
  """Returns parameters as nested dictionaries of NumPy arrays, in which form calls carry them."""
  return _state_dict(jax.device_get(params))


def from_data(data: Any, template: Nest) -> Nest:
  """Returns the parameters that `to_data` of another node has made data of.

  Args:
    data: from the other node; it may be anything.
    template: parameters of the same structure; their leaves have a shape and a dtype.

  Raises:
    ValueError: if they belong to a different network; one sentence.
  """
  if difference := _difference(template, data):
    raise ValueError(
      f'the parameters of another node do not fit: it {difference}; both nodes need the same agent and '
      'options.'
    )
  return _placed(template, data)


def _fit(path: str, template: Any, content: bytes, advice: str, new: Sequence[str] = ()) -> Any:
  """Returns what `serialise` has made `content` of, in the structure of a template."""
  try:
    state = serialization.msgpack_restore(content)
  except Exception as error:  # msgpack and its callbacks raise many types.
    raise UnusableCheckpoint(f'{path} is damaged: it is not complete msgpack ({error}).') from error
  if isinstance(template, dict) and isinstance(state, dict):
    state = {name: _state_dict(template[name]) for name in new if name in template} | state
  if difference := _difference(template, state):
    raise UnusableCheckpoint(f'{path} {difference}: {advice}')
  return _placed(template, state)


def _placed(template: Any, state: Any) -> Any:
  """Returns the leaves of a state that does not differ from a template, each at its namesake's place."""
  structure: Any = jax.tree.structure(template)
  places = jax.tree.leaves(_state_dict(structure.unflatten(range(structure.num_leaves))))
  leaves = dict(zip(places, jax.tree.leaves(state), strict=True))
  return structure.unflatten(leaves[place] for place in range(structure.num_leaves))


def _state_dict(tree: Any) -> Any:
  """Returns a pytree as flax's nested dictionaries.

  A node that flax does not know, such as a dataclass that is registered with JAX alone, becomes a
  dictionary from the paths of its leaves.
  """
  return jax.tree.map(
    lambda node: node if jax.tree_util.all_leaves([node]) else _by_path(node),
    serialization.to_state_dict(tree),
    is_leaf=lambda node: not isinstance(node, dict),
  )


def _by_path(tree: Any) -> dict[str, Any]:
  leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
  return {jax.tree_util.keystr(where, simple=True, separator='/'): leaf for where, leaf in leaves}


def _difference(template: Any, state: Any) -> str:
  """Returns the first leaf in which a state differs from a template; '' if none does."""
  here, there = _leaves(_state_dict(template)), _leaves(state)
  for where in sorted(here.keys() | there.keys()):
    found, wanted = there.get(where, 'nothing'), here.get(where, 'nothing')
    if found != wanted:
      return f'has {found} for {where}, but this agent expects {wanted}'
  return ''


def _leaves(tree: Any) -> dict[str, str]:
  """Returns the leaves of nested dictionaries by path, as `float32[2, 3]`."""
  return {
    name: f'{leaf.dtype}{list(leaf.shape)}' if hasattr(leaf, 'dtype') else type(leaf).__name__
    for name, leaf in _by_path(tree).items()
  }
