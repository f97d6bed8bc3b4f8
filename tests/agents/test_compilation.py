"""Options of compilation: with them and without, functions compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import compilation
from agents.anakin.environments import catch
from agents.anakin.loop import AnakinLoop
from agents.vtrace.agent import VTrace
from agents.vtrace.config import VTraceConfig


@pytest.mark.skipif(jax.__version_info__ > (0, 6, 2), reason='later versions may lack that runtime')
def test_cpus_have_the_former_runtime():
  assert compilation.options('cpu')['xla_cpu_use_thunk_runtime'] is False


def test_other_platforms_have_the_options_of_xla():
  assert compilation.options('tpu') is None


def test_an_xla_without_the_former_runtime_compiles_with_its_own_options(monkeypatch):
  compilation.options.cache_clear()
  monkeypatch.setattr(compilation, '_FORMER_CPU_RUNTIME', {'xla_cpu_no_such_option': False})
  assert compilation.options('cpu') is None
  compilation.options.cache_clear()


def test_a_product_with_the_result_of_a_loop_compiles():
  weights = jnp.eye(256)

  def looped(x):
    later, _ = jax.lax.scan(lambda x, _: (jnp.tanh(x @ weights), None), x, length=5)
    return later @ weights

  x = jnp.full((32, 256), 0.5)
  found = jax.jit(looped, compiler_options=compilation.options('cpu'))(x)
  np.testing.assert_allclose(found, jax.jit(looped)(x), rtol=1e-5)


@pytest.mark.parametrize('core', ['none', 'lstm'])
def test_a_loop_learns_the_same_with_either_runtime(core, monkeypatch):
  environment = catch.make('')
  agent = VTrace(VTraceConfig(core=core), environment.observation_spec, environment.action_spec)

  def trained():
    loop = AnakinLoop(agent, environment, 8, jax.devices()[:1], updates_per_call=2)
    state, report = loop.train(loop.init(jax.random.key(1)))
    return state.learner.params, report.metrics['loss']

  found = trained()
  monkeypatch.setattr(compilation, 'options', lambda platform: None)
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), found, trained()
  )
