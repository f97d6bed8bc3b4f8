"""Recurrent cores: their equations, resets and initial memory."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.networks import cores
from agents.networks.config import CORES, NetworkConfig

NAMES = [name for name in CORES if name != 'none']
ROWS, BATCH, INPUTS, SIZE = 23, 4, 3, 6


def make(name, size=SIZE, seed=0, **options):
  """Returns a core with parameters of which none is 0, and its `apply`."""
  core = cores.make(NetworkConfig(core=name, core_size=size, **options))
  params = initial(core, seed)
  keys = iter(jax.random.split(jax.random.key(seed + 1), len(jax.tree.leaves(params))))
  params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)
  return core, params, jax.jit(core.apply)


def initial(core, seed=0):
  rows = jnp.zeros((1, 1, INPUTS)), jnp.zeros((1, 1), bool)
  return jax.jit(core.init)(jax.random.key(seed), *rows, core.initial_state(1))


def random_rows(core, seed=0):
  """Returns rows `[T, B]`, of which about every sixth is FIRST, and a state before them."""
  rng = np.random.default_rng(seed)
  inputs = rng.normal(size=(ROWS, BATCH, INPUTS)).astype(np.float32)
  is_first = rng.uniform(size=(ROWS, BATCH)) < 1 / 6
  is_first[0], is_first[ROWS // 2] = np.arange(BATCH) == 0, True
  state = tuple(rng.normal(size=x.shape).astype(np.float32) for x in core.initial_state(BATCH))
  return inputs, is_first, state


def close(actual, expected, atol=1e-5):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), actual, expected)


def test_a_gru_is_that_of_flax():
  core, params, apply = make('gru')
  inputs, is_first, (h,) = random_rows(core)
  own = params['params']
  gates = {
    **{f'i{g}': {} for g in 'rzn'},
    **{f'h{g}': {} for g in 'rzn'},
  }
  for g, kernel in zip('rzn', np.split(own['input']['kernel'], 3, axis=-1), strict=True):
    gates[f'i{g}']['kernel'] = kernel
  for g, bias in zip('rzn', np.split(own['input']['bias'], 3), strict=True):
    gates[f'i{g}']['bias'] = bias
  for g, kernel in zip('rzn', np.split(own['recurrent'], 3, axis=-1), strict=True):
    gates[f'h{g}']['kernel'] = kernel
  gates['hn']['bias'] = own['candidate_bias']
  cell, expected, before = jax.jit(nn.GRUCell(SIZE).apply), [], (h,)
  for x, first in zip(inputs, is_first, strict=True):
    h, output = cell({'params': gates}, np.where(first[:, None], 0, h), x)
    expected.append(output)
  close(apply(params, inputs, is_first, before), (np.stack(expected), (h,)))


def lru_by_hand(params, inputs, is_first, state):
  """Returns the outputs and the state, row by row, in complex numbers of twice the precision."""
  p = jax.tree.map(lambda x: np.asarray(x, np.float64), params['params'])
  eigenvalues = np.exp(-np.exp(p['nu']) + 1j * np.exp(p['theta']))
  b_re, b_im = np.split(p['B']['kernel'], 2, axis=1)
  c_re, c_im = np.split(p['C']['kernel'], 2, axis=0)
  h, outputs = state[0] + 1j * state[1].astype(np.float64), []
  for row, first in zip(inputs.astype(np.float64), is_first, strict=True):
    x = row @ p['input']['kernel'] + p['input']['bias']
    centred = x - x.mean(-1, keepdims=True)
    u = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    u = u * p['norm']['scale'] + p['norm']['bias']
    h = np.where(first[:, None], 0, h)
    h = eigenvalues * h + np.exp(p['gamma']) * (u @ (b_re + 1j * b_im))
    y = (h @ (c_re - 1j * c_im)).real + p['D'] * u
    y = y / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    outputs.append(x + y / (1 + np.exp(-(y @ p['gate']['kernel'] + p['gate']['bias']))))
  return np.stack(outputs), (h.real, h.imag)


def test_the_parallel_unroll_of_an_lru_is_its_recurrence():
  core, params, apply = make('lru')
  rows = random_rows(core)
  close(apply(params, *rows), lru_by_hand(params, *rows))


@pytest.mark.parametrize('name', NAMES)
def test_row_by_row_is_the_whole_unroll(name):
  core, params, apply = make(name)
  inputs, is_first, before = random_rows(core)
  state, outputs = before, []
  for t in range(ROWS):
    output, state = apply(params, inputs[t : t + 1], is_first[t : t + 1], state)
    outputs.append(output[0])
  assert len(state) == len(core.initial_state(1)) == core.num_parts
  assert all(x.shape == (BATCH, SIZE) and x.dtype == jnp.float32 for x in state)
  close(apply(params, inputs, is_first, before), (np.stack(outputs), state))


@pytest.mark.parametrize('name', NAMES)
def test_nothing_of_before_a_first_row_reaches_after_it(name):
  core, params, apply = make(name)
  inputs, is_first, state = random_rows(core)
  begun = np.cumsum(is_first, axis=0) > 0
  outputs, after = apply(params, inputs, is_first, state)
  changed = np.where(begun[..., None], inputs, 100 * inputs)
  others, other_after = apply(params, changed, is_first, jax.tree.map(lambda x: x + 1, state))
  np.testing.assert_array_equal(np.where(begun[..., None], others - outputs, 0), 0)
  jax.tree.map(np.testing.assert_array_equal, other_after, after)
  assert np.all(np.any(others != outputs, axis=-1)[~begun])
  # A FIRST row begins where the initial state does, whatever the state is.
  fresh, _ = apply(params, inputs[:1], is_first[:1], core.initial_state(BATCH))
  close(fresh[0][is_first[0]], outputs[0][is_first[0]], atol=1e-6)


@pytest.mark.parametrize('bias', [1.0, 3.0])
@pytest.mark.parametrize('name', ['lstm', 'gru'])
def test_new_gates_forget_by_their_bias(name, bias):
  core, _, apply = make(name, size=2, forget_bias=bias)
  params = jax.tree.map_with_path(
    lambda path, x: x if path[-1].key == 'bias' else 0 * x, initial(core)
  )
  rows = jnp.zeros((5, 1, INPUTS)), jnp.zeros((5, 1), bool)
  kept = jnp.array([[1.0, -0.5]])
  state = (kept, *core.initial_state(1)[1:])
  _, (after, *_) = apply(params, *rows, state)
  np.testing.assert_allclose(after, kept / (1 + np.exp(-bias)) ** 5, rtol=1e-6)


def test_a_new_lru_has_its_eigenvalues_in_a_ring():
  core = cores.make(NetworkConfig(core='lru', core_size=1024))
  own = initial(core)['params']
  modulus, phase = np.exp(-np.exp(own['nu'])), np.exp(own['theta'])
  assert modulus.min() >= 0.9 and modulus.max() <= 0.999
  assert phase.min() > 0 and phase.max() <= np.pi / 10 * (1 + 1e-6)
  # Spread evenly over the area and over the phases, as in the paper.
  shares = np.arange(0.1, 1, 0.1)
  np.testing.assert_allclose(
    np.quantile(modulus**2, shares), 0.81 + shares * (0.999**2 - 0.81), atol=0.015
  )
  np.testing.assert_allclose(np.quantile(phase, shares), shares * np.pi / 10, atol=0.015)
  # For inputs of unit variance that are independent in time, the states have that variance: it is
  # exp(2 gamma) / (1 - |lambda|^2).
  np.testing.assert_allclose(np.exp(2 * own['gamma']) / (1 - modulus**2), 1, rtol=1e-3)


@pytest.mark.parametrize('name', NAMES)
def test_gradients_over_long_unrolls_are_finite(name):
  core, params, _ = make(name)
  inputs = jax.random.normal(jax.random.key(0), (300, 1, INPUTS))
  is_first = jnp.zeros((300, 1), bool)

  def last(params, inputs):
    return jnp.sum(core.apply(params, inputs, is_first, core.initial_state(1))[0][-1])

  gradients = jax.jit(jax.grad(last, argnums=(0, 1)))(params, inputs)
  assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradients))
  # The rows of a hundred steps ago still matter to an LRU.
  if name == 'lru':
    assert np.abs(gradients[1][-100]).max() > 1e-3
