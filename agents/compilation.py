"""Options with which the functions that run all the time are compiled."""

from __future__ import annotations

import functools

import jax

# XLA's present runtime for CPUs does not vectorise an elementwise kernel that overwrites its input, such
# as a step of Adam. The former one does; benchmarks/NOTES.md has what that gives. Its rewriter for
# oneDNN aborts the process on a product with the result of a loop, such as an LSTM's.
_FORMER_CPU_RUNTIME: dict[str, str | bool] = {
  'xla_cpu_use_thunk_runtime': False,
  'xla_disable_hlo_passes': 'onednn-contraction-rewriter',
}


@functools.cache
def options(platform: str) -> dict[str, str | bool] | None:
  """Returns the `compiler_options` of `jax.jit` for a platform, such as 'cpu'; None for XLA's own.

  Results differ from those with XLA's own options by rounding. The first call for 'cpu' starts its
  backend.
  """
  if platform != 'cpu':
    return None
  try:
    with jax.default_device(jax.devices('cpu')[0]):
      jax.jit(lambda: 0, compiler_options=_FORMER_CPU_RUNTIME).lower().compile()
  except jax.errors.JaxRuntimeError:  # This version of XLA has no such option.
    return None
  return _FORMER_CPU_RUNTIME
