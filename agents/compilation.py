"""How a function that runs all the time is compiled, and where it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

# XLA's current CPU runtime does not vectorise an elementwise kernel that overwrites its input, such
# as a step of Adam. The previous one does, but it splits fewer kernels between threads;
# benchmarks/NOTES.md has what that gives. It has no collectives, and its rewriter for oneDNN aborts the
# process when it compiles the update of a large LSTM.
_LEGACY_CPU_RUNTIME: dict[str, str | bool] = {
  'xla_cpu_use_thunk_runtime': False,
  'xla_disable_hlo_passes': 'onednn-contraction-rewriter',
}
# Above it, two threads are worth more than vectorised kernels.
_FEW_MULTIPLICATIONS = 200_000


def options(devices: Sequence[jax.Device], multiplications: int) -> dict[str, str | bool] | None:
  """Returns the `compiler_options` of `jax.jit` for a function; None for XLA's own.

  Results differ from those with XLA's own options by rounding.

  Args:
    devices: that the function runs on.
    multiplications: rows times weights, for the network's usual number of rows.
  """
  one_cpu = len(devices) == 1 and devices[0].platform == 'cpu'
  if one_cpu and multiplications <= _FEW_MULTIPLICATIONS and _has_former_cpu_runtime():
    return _LEGACY_CPU_RUNTIME
  return None


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


@functools.cache
def _has_former_cpu_runtime() -> bool:
  """Returns whether this version of XLA has the runtime; the first call starts the backend of CPUs."""
  try:
    with jax.default_device(jax.devices('cpu')[0]):
      jax.jit(lambda: 0, compiler_options=_LEGACY_CPU_RUNTIME).lower().compile()
  except jax.errors.JaxRuntimeError:  # An unknown option.
    return False
  return True
