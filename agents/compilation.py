"""Where a function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns a function of NumPy arrays, compiled for the first CPU also where there is an accelerator.

  It is for small results that the host needs: on an accelerator they would wait for an update. Starts
  the backend of CPUs.
  """
  compiled, device = jax.jit(function), jax.local_devices(backend='cpu')[0]

  def call(*args: Any) -> Any:
    with jax.default_device(device):
      return compiled(*args)

  return call
