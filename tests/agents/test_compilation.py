"""Options of compilation: with them and without, functions compute the same."""

import jax
import numpy as np
import pytest

from agents import compilation
from agents.anakin.environments import catch
from agents.anakin.loop import AnakinLoop
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig
from tests.agents.subprocesses import run_python


@pytest.fixture(name='fresh')
def fixture_fresh():
  """Forgets what this XLA has, before the test and after it."""
  compilation._has_former_cpu_runtime.cache_clear()
  yield
  compilation._has_former_cpu_runtime.cache_clear()


@pytest.mark.skipif(jax.__version_info__ > (0, 6, 2), reason='later versions may lack that runtime')
def test_only_little_work_on_one_cpu_gets_the_former_runtime():
  one = jax.devices('cpu')[:1]
  assert compilation.options(one, 1000)['xla_cpu_use_thunk_runtime'] is False
  assert compilation.options(one, 10**6) is None
  assert compilation.options(one * 2, 1000) is None, 'it has no collectives'


def test_an_xla_without_the_former_runtime_compiles_with_its_own_options(fresh, monkeypatch):
  monkeypatch.setattr(compilation, '_LEGACY_CPU_RUNTIME', {'xla_cpu_no_such_option': False})
  assert compilation.options(jax.devices('cpu')[:1], 1000) is None


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


@pytest.mark.parametrize('core', ['none', 'lstm'])
def test_a_loop_learns_the_same_with_either_runtime(core, monkeypatch):
  environment = catch.make('')
  # With the rewriter for oneDNN, compiling an LSTM of 256 units aborts the process.
  config = VTraceConfig(core=core, lstm_size=256)
  agent = VTrace(config, environment.observation_spec, environment.action_spec)

  def trained(limit):
    monkeypatch.setattr(compilation, '_FEW_MULTIPLICATIONS', limit)
    loop = AnakinLoop(agent, environment, 8, jax.devices()[:1], updates_per_call=2)
    state, report = loop.train(loop.init(jax.random.key(1)))
    return state.learner.params, report.metrics['loss']

  found, wanted = trained(10**9), trained(-1)
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, wanted)
