"""The user's copies of peers that no package has."""

from __future__ import annotations

import os
from collections.abc import Sequence


def parse(items: Sequence[str]) -> dict[str, str]:
  """Returns --scripts as absolute paths by peer.

  Raises:
    ValueError: one is not a name=path of something that exists; one sentence.
  """
  found = {}
  for item in items:
    name, _, path = item.partition('=')
    if not path or not os.path.exists(path):
      raise ValueError(f'--scripts={item} must be NAME=PATH of a file or directory.')
    found[name] = os.path.abspath(path)
  return found
