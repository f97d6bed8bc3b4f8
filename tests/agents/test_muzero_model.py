"""MuZero's models of images: shapes, the range of hidden states, what they refuse."""

from __future__ import annotations

import dataclasses
import functools

import dm_env.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.muzero.config import MuZeroConfig
from agents.muzero.model import ConvDynamics, make_model

CONFIG = MuZeroConfig(model_channels=8, model_blocks=1, head_size=8, num_bins=21, max_bin=5.0)
QUICK = {'xla_backend_optimization_level': 0}  # Compilation is most of the cost.


@pytest.mark.slow
@pytest.mark.parametrize(
  ('model', 'shape', 'dtype', 'state'),
  [('conv', (10, 10, 4), bool, (10, 10, 8)), ('residual', (96, 96, 3), np.uint8, (6, 6, 8))],
)
def test_models_of_images(model, shape, dtype, state):
  built = make_model(CONFIG, dm_env.specs.Array(shape, dtype), 3)
  observation = jax.random.randint(jax.random.key(0), (2, *shape), 0, 2).astype(dtype)
  action = jnp.array([0, 2])

  def run(key):
    params = built.init(key, observation, action)
    hidden = built.apply(params, observation, method='represent')
    after, reward = built.apply(params, hidden, action, method='dynamics')
    return hidden, after, reward, built.apply(params, after, method='predict')

  hidden, after, reward, prediction = jax.jit(run, compiler_options=QUICK)(jax.random.key(0))
  for x in (hidden, after):
    assert x.shape == (2, *state)
    np.testing.assert_allclose([x.min((1, 2, 3)), x.max((1, 2, 3))], [[0, 0], [1, 1]], atol=1e-3)
  np.testing.assert_array_equal(reward, np.zeros((2, 21)))
  assert prediction.policy_logits.shape == (2, 3) and prediction.value_logits.shape == (2, 21)
  with pytest.raises(ValueError, match=f'--model={model} needs images'):
    make_model(dataclasses.replace(CONFIG, model=model), dm_env.specs.Array((5,), dtype), 3)


@pytest.mark.slow
@pytest.mark.parametrize('options', [{'model': 'torso'}, {'torso': 'minatar'}])
def test_a_torso_represents_an_image_for_a_search_with_layers(options):
  config = dataclasses.replace(CONFIG, hidden_state_size=12, **options)
  built = make_model(config, dm_env.specs.Array((10, 10, 4), bool), 3)
  observation, action = jnp.zeros((2, 10, 10, 4), bool), jnp.array([0, 2])

  def run(key):
    params = built.init(key, observation, action)
    hidden = built.apply(params, observation, method='represent')
    return params, hidden, built.apply(params, hidden, action, method='dynamics')[0]

  params, hidden, after = jax.eval_shape(run, jax.random.key(0))
  assert hidden.shape == after.shape == (2, 12)
  kernels = jax.tree.leaves(params['params']['representation'])
  assert (3, 3, 4, 16) in [kernel.shape for kernel in kernels]  # The convolution of MinAtar.


@pytest.mark.slow
@pytest.mark.parametrize(
  ('model', 'shape', 'kernels'),
  [('conv', (10, 10, 4), [(8, 2), (200, 8), (8, 3)]), ('mlp', (5,), [(12, 8), (8, 3)])],
)
def test_heads_of_images_reduce_the_channels_before_their_layers(model, shape, kernels):
  config = dataclasses.replace(CONFIG, model=model, hidden_state_size=12, head_channels=2)
  built = make_model(config, dm_env.specs.Array(shape, np.float32), 3)
  params = jax.eval_shape(built.init, jax.random.key(0), jnp.zeros((2, *shape)), jnp.array([0, 2]))
  layers = params['params']['policy']
  found = [layers[f'Dense_{i}']['kernel'].shape for i in range(len(layers))]
  assert found == kernels


@pytest.mark.slow
@pytest.mark.parametrize('options', [{'torso': 'small'}, {'model': 'conv'}, {'model': 'residual'}])
def test_a_small_object_moves_the_hidden_state_whatever_the_background(options):
  """Without centring, a bright background takes the range of the state, and the object is invisible."""
  config = dataclasses.replace(CONFIG, hidden_state_size=12, **options)
  built = make_model(config, dm_env.specs.Array((42, 42), np.uint8), 3)
  screens = jnp.zeros((2, 42, 42), jnp.uint8).at[0, 10, 10].set(50).at[1, 30, 30].set(50)
  init = jax.jit(built.init, compiler_options=QUICK)
  params = init(jax.random.key(0), screens, jnp.array([0, 2]))
  represent = jax.jit(functools.partial(built.apply, method='represent'), compiler_options=QUICK)
  dark, bright = (represent(params, screens + background) for background in (0, 200))
  np.testing.assert_allclose(dark, bright, atol=2e-3)
  assert jnp.max(jnp.abs(bright[0] - bright[1])) > 0.1


def test_what_an_action_changes_depends_on_the_state_without_blocks():
  dynamics = ConvDynamics(blocks=0, num_actions=2, norm=False)
  states = jax.random.uniform(jax.random.key(1), (2, 5, 5, 4))
  params = jax.jit(dynamics.init)(jax.random.key(0), states, jnp.array([0, 1]))
  apply = jax.jit(dynamics.apply)
  after = [apply(params, states, jnp.full(2, action)) for action in (0, 1)]
  changed = after[1] - after[0]
  assert jnp.max(jnp.abs(changed[1] - changed[0])) > 0.1
