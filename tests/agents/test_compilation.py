"""Functions that run on a CPU beside an accelerator."""

from tests.agents.subprocesses import run_python

_ON_CPU = """
import jax, numpy as np
from agents import compilation
first, last = jax.devices()
x = np.arange(3.0, dtype=np.float32)
with jax.default_device(last):
  assert jax.jit(jax.numpy.negative)(x).devices() == {last}
  result = compilation.on_cpu(lambda x: {'y': -x})(x)['y']
assert result.devices() == {first}
np.testing.assert_array_equal(result, -x)
"""


def test_a_small_result_for_the_host_is_computed_on_the_first_cpu():
  """The default device stands for an accelerator."""
  flags = {'XLA_FLAGS': '--xla_force_host_platform_device_count=2', 'JAX_PLATFORMS': 'cpu'}
  run_python('-c', _ON_CPU, **flags)
