"""The options that had another name in earlier versions, whose records still have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_EARLIER = {'lstm_size': 'core_size'}


def current(options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns recorded options under the names of this version."""
  return {_EARLIER.get(name, name): value for name, value in options.items()}
