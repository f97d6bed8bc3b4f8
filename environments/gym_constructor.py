"""The options of a registered Gymnasium environment's own constructor."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from environments import options

# What `gymnasium.make` and `make_vec` pass to a constructor, or keep for themselves.
_HIDDEN = ('id', 'num_envs', 'max_episode_steps', 'disable_env_checker')


def registered(task: str) -> EnvSpec | None:
  """Imports the module of 'module:id', if it has one; returns what is registered, None if nothing is."""
  module, colon, name = task.rpartition(':')
  if colon:
    importlib.import_module(module)
  return gymnasium.registry.get(name)


def arguments(
  task: str,
  found: EnvSpec | None,
  vectorised: bool,
  given: Mapping[str, str],
  ours: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns texts as arguments of a constructor; see `environments.options.of_constructor`.

  Args:
    task: the id, for errors.
    found: what is registered by that id; None if Gymnasium looks for it in another way, as without a
      version.
    vectorised: whether the vector environment is made.
    given: the texts by option.
    ours: options of the family and their defaults.

  Raises:
    ValueError: an option is unknown, or has no value of its type; one sentence.
  """
  constructor: Callable[..., Any] = _any
  kwargs: Mapping[str, Any] = {}
  if found is not None:
    point = found.vector_entry_point if vectorised else found.entry_point
    constructor, kwargs = _loaded(point), found.kwargs
  return options.of_constructor(f'gymnasium:{task}', constructor, given, kwargs, ours, _HIDDEN)


def _loaded(entry_point: Any) -> Callable[..., Any]:
  if callable(entry_point):
    return entry_point
  module, _, name = entry_point.partition(':')
  loaded: Callable[..., Any] = getattr(importlib.import_module(module), name)
  return loaded


def _any(**keywords: Any) -> None:
  """Stands for a constructor of which nothing is known."""
