"""The Python of Reverb's server, which `make` installs in an environment of its own."""

from __future__ import annotations

import os

from environments.interpreters import ROOT

PYTHON = os.path.join(ROOT, '.venv-replay', 'bin', 'python')


def problem() -> str:
  """Returns why it cannot be used, as one sentence; '' if it can."""
  if os.path.exists(PYTHON):
    return ''
  return f'{PYTHON} does not exist: Reverb needs an environment of its own, which `make` installs.'
