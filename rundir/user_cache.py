"""The directory of the files that a user's runs share on one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping


def path(name: str, environment: Mapping[str, str] = os.environ) -> str:
  """Returns the path of a cache, which need not exist.

  Args:
    name: of the cache.
    environment: the user's variables; XDG_CACHE_HOME moves the directory.
  """
  home = environment.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
  return os.path.join(home, 'launchpod', name)
