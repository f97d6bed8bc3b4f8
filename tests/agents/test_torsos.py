"""Torsos: published shapes, initial weights, and convolutions that are fast in their places."""

from __future__ import annotations

import dm_env.specs
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents.networks import choice, convolution, torsos
from agents.networks.config import NetworkConfig


def image_spec(*shape, dtype=np.uint8):
  return dm_env.specs.BoundedArray(shape, dtype, 0, 255)


def number_of_params(module, observation):
  params = jax.eval_shape(module.init, jax.random.key(0), observation)
  return sum(x.size for x in jax.tree.leaves(params))


@pytest.mark.parametrize(
  ('module', 'shape', 'features', 'size'),
  [
    (torsos.MLP((128, 64)), (10, 5), 64, 50 * 128 + 128 + 128 * 64 + 64),
    # 84 -> 20 -> 9 -> 7 pixels.
    (
      torsos.Convolutions(torsos.NATURE, 512),
      (84, 84, 4),
      512,
      (64 * 4 + 1) * 32 + (16 * 32 + 1) * 64 + (9 * 64 + 1) * 64 + (49 * 64 + 1) * 512,
    ),
    (
      torsos.Convolutions(torsos.NATURE, 16),
      (36, 36),
      16,
      65 * 32 + 513 * 64 + 577 * 64 + 65 * 16,
    ),
    # 42 -> 20 -> 9 -> 7 pixels.
    (
      torsos.Convolutions(torsos.SMALL, 256),
      (42, 42, 4),
      256,
      (16 * 4 + 1) * 16 + (16 * 16 + 1) * 32 + (9 * 32 + 1) * 32 + (49 * 32 + 1) * 256,
    ),
    (
      torsos.Convolutions(torsos.SMALL, 16),
      (18, 18),
      16,
      17 * 16 + 257 * 32 + 289 * 32 + 33 * 16,
    ),
    (torsos.MinAtar(128), (10, 10, 4), 128, (9 * 4 + 1) * 16 + (8 * 8 * 16 + 1) * 128),
    # 84 -> 42 -> 21 -> 11 pixels; per section one convolution and four in residual blocks.
    (
      torsos.Impala(hidden_size=256),
      (84, 84, 4),
      256,
      (9 * 4 + 1) * 16
      + 4 * (9 * 16 + 1) * 16
      + (9 * 16 + 1) * 32
      + 9 * (9 * 32 + 1) * 32
      + (11 * 11 * 32 + 1) * 256,
    ),
  ],
)
def test_torsos_have_the_published_shapes(module, shape, features, size):
  observation = jnp.zeros((2, *shape), jnp.uint8)
  assert number_of_params(module, observation) == size
  output, _ = jax.eval_shape(lambda: module.init_with_output(jax.random.key(0), observation))
  assert output.shape == (2, features) and output.dtype == jnp.float32


@pytest.mark.parametrize(
  ('make', 'shape', 'normalised'),
  [
    (lambda **options: torsos.MLP((128, 64), **options), (10, 5), (128, 64)),
    (
      lambda **options: torsos.Convolutions(torsos.NATURE, 512, **options),
      (84, 84, 4),
      (32, 64, 64, 512),
    ),
    (lambda **options: torsos.MinAtar(128, **options), (10, 10, 4), (16, 128)),
    (lambda **options: torsos.Impala(**options), (84, 84, 4), (16, 32, 32, 256)),
  ],
)
def test_layer_norm_adds_a_scale_and_a_bias_for_each_channel(make, shape, normalised):
  observation = jnp.zeros((2, *shape), jnp.uint8)
  plain, with_norm = (number_of_params(make(layer_norm=on), observation) for on in (False, True))
  assert with_norm - plain == 2 * sum(normalised)


def test_layer_norm_is_over_the_units_of_a_row_before_the_activation():
  rows = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
  torso = torsos.MLP((5, 4), layer_norm=True)
  params = torso.init(jax.random.key(0), rows)['params']
  params['LayerNorm_0'] = {'scale': np.arange(1.0, 6.0), 'bias': np.full(5, 0.3)}
  x = rows
  for i in range(2):
    x = x @ params[f'Dense_{i}']['kernel'] + params[f'Dense_{i}']['bias']
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    norm = params[f'LayerNorm_{i}']
    x = np.maximum(x * norm['scale'] + norm['bias'], 0)
  np.testing.assert_allclose(torso.apply({'params': params}, rows), x, atol=1e-4)


def test_planes_that_pqn_normalises_count_as_pixels_whatever_their_type():
  planes = np.random.default_rng(0).integers(0, 2, (3, 10, 10, 4))
  torso = torsos.MinAtar(5, layer_norm=True)
  variables = torso.init(jax.random.key(0), planes)
  # With biases of 0 the first LayerNorm would hide the scale.
  bias = jnp.linspace(-0.1, 0.1, 16)
  variables['params']['Conv_0']['bias'] = bias
  expected = torso.apply(variables, planes.astype(np.uint8))
  for dtype in (bool, np.int32, np.float32):
    np.testing.assert_allclose(torso.apply(variables, planes.astype(dtype)), expected, atol=1e-5)
  plain = torsos.MinAtar(5)
  np.testing.assert_allclose(
    plain.apply(plain.init(jax.random.key(0), planes), planes.astype(np.float32)),
    255 * plain.apply(plain.init(jax.random.key(0), planes), planes.astype(np.uint8)),
    rtol=1e-4,
  )


def test_pixels_are_scaled_and_other_observations_are_cast():
  torso = torsos.MLP(())
  pixels = jnp.array([[[0, 51], [102, 255]]], jnp.uint8)
  np.testing.assert_allclose(torso.apply({}, pixels), [[0.0, 0.2, 0.4, 1.0]], rtol=1e-6)
  np.testing.assert_array_equal(torso.apply({}, pixels.astype(jnp.int32)), [[0, 51, 102, 255]])


def test_centred_images_of_bytes_have_no_mean_and_others_stay_as_they_are():
  images = jnp.array([[[[0, 9]], [[51, 9]]], [[[255, 0]], [[255, 51]]]], jnp.uint8)
  expected = [[[[-0.1, 0.0]], [[0.1, 0.0]]], [[[0.0, -0.1]], [[0.0, 0.1]]]]
  np.testing.assert_allclose(torsos.to_image(images, center=True), expected, atol=1e-6)
  floats = images.astype(jnp.float32)
  np.testing.assert_array_equal(torsos.to_image(floats, center=True), floats)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['nature', 'small', 'impala', 'minatar', 'auto'])
def test_a_brighter_screen_is_the_same_to_a_torso_that_centres(name):
  config = NetworkConfig(torso=name, center_pixels=True, hidden_size=8)
  torso = torsos.make_torso(config, image_spec(42, 42))
  screen = jax.random.randint(jax.random.key(0), (1, 42, 42), 0, 200).astype(jnp.uint8)
  params = jax.jit(torso.init)(jax.random.key(1), screen)
  apply = jax.jit(torso.apply)
  np.testing.assert_allclose(apply(params, screen), apply(params, screen + 50), atol=1e-4)


@pytest.mark.parametrize(
  ('spec', 'expected'),
  [
    (image_spec(84, 84), 'nature'),
    (image_spec(36, 36, 3), 'nature'),
    (image_spec(35, 84, 3), 'mlp'),
    (image_spec(10, 10, 4), 'minatar'),
    (image_spec(35, 3, 1, dtype=bool), 'minatar'),
    (image_spec(10, 2, 4), 'mlp'),
    (image_spec(10, 10), 'mlp'),
    (image_spec(84, 84, dtype=np.float32), 'mlp'),
    (dm_env.specs.Array((10,), np.float32), 'mlp'),
    (dm_env.specs.Array((), np.int32), 'mlp'),
  ],
)
def test_auto_torso(spec, expected):
  assert choice.torso('auto', spec) == expected
  assert choice.torso('mlp', spec) == 'mlp'


@pytest.mark.parametrize('torso', ['nature', 'small', 'impala', 'minatar'])
def test_convolutions_reject_what_is_no_image(torso):
  with pytest.raises(ValueError, match=f'--torso={torso} needs .*--torso=auto'):
    choice.torso(torso, dm_env.specs.Array((10,), np.float32))


def test_a_small_image_has_pixels_for_the_convolution_of_minatar_or_is_rejected():
  with pytest.raises(
    ValueError, match=r'--torso=minatar needs images of at least 3x3 .*\(2, 9, 4\)'
  ):
    choice.torso('minatar', image_spec(2, 9, 4))


def kernels_of(torso, shape):
  """Returns new kernels of a torso, from inputs to outputs, `[inputs, outputs]` each."""
  params = jax.jit(torso.init)(jax.random.key(0), jnp.zeros((1, *shape)))['params']
  return [
    np.asarray(layer['kernel']).reshape(-1, layer['kernel'].shape[-1]) for layer in params.values()
  ]


@pytest.mark.slow
@pytest.mark.parametrize(
  'torso, shape',
  [
    ({'torso': 'mlp', 'mlp_sizes': (16, 64)}, (30,)),
    ({'torso': 'mlp', 'mlp_sizes': (16, 64), 'activation': 'tanh'}, (30,)),
    ({'torso': 'nature', 'hidden_size': 32}, (36, 36)),
    ({'torso': 'small', 'hidden_size': 32}, (18, 18)),
    ({'torso': 'minatar'}, (10, 10, 4)),
  ],
)
def test_orthogonal_weights_have_the_gain_of_ppo(torso, shape):
  config = NetworkConfig(init='orthogonal', **torso)
  kernels = kernels_of(torsos.make_torso(config, image_spec(*shape)), shape)
  assert len(kernels) == {'mlp': 2, 'nature': 4, 'small': 4, 'minatar': 2}[config.torso]
  for kernel in kernels:  # All of their singular values are sqrt(2).
    np.testing.assert_allclose(np.linalg.svd(kernel)[1], np.sqrt(2), rtol=1e-4)


@pytest.mark.parametrize('activation, variance', [('relu', 2), ('tanh', 1)])
def test_fan_in_keeps_the_scale_of_activations(activation, variance):
  for kernel in kernels_of(torsos.MLP((400, 300), activation), (300,)):
    np.testing.assert_allclose(np.var(kernel) * len(kernel), variance, rtol=0.05)


@pytest.mark.parametrize(
  'activation, function', [('tanh', np.tanh), ('relu', lambda x: np.maximum(x, 0))]
)
def test_the_mlp_has_its_activation_after_every_layer(activation, function):
  torso, x = torsos.MLP((5, 4), activation), np.float32([[1.0, -2.0, 0.5]])
  params = torso.init(jax.random.key(0), x)
  expected = x
  for kernel in kernels_of(torso, (3,)):
    expected = function(expected @ kernel)
  np.testing.assert_allclose(torso.apply(params, x), expected, rtol=1e-5)


# Few channels are copied; in a first layer, the gradient copies them too.
@pytest.mark.slow
@pytest.mark.parametrize('channels, features', [(2, 9), (4, 3), (16, 2)])
@pytest.mark.parametrize(
  'padding, size, stride', [('SAME', 3, 1), ('VALID', 3, 1), ('VALID', 2, 2), ('VALID', 4, 2)]
)
def test_a_convolution_in_a_loop_and_its_gradients_are_those_outside(
  padding, size, stride, channels, features
):
  outside = nn.Conv(features, (size, size), (stride, stride), padding=padding)
  inside = outside.clone(conv_general_dilated=convolution.in_loop)
  x_key, key = jax.random.split(jax.random.key(0))
  x = jax.random.normal(x_key, (2, 6, 5, channels))
  params = jax.jit(outside.init)(key, x)

  def loss(params, x, module):
    y = module.apply(params, x)
    return jnp.sum(np.random.default_rng(0).normal(size=y.shape).astype(np.float32) * y), y

  step = jax.jit(jax.grad(loss, (0, 1), has_aux=True), static_argnums=2)
  (expected, outputs), (gradients, found) = (step(params, x, m) for m in (outside, inside))
  np.testing.assert_allclose(found, outputs, atol=1e-5)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), gradients, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
  'torso, shape',
  [
    (torsos.Convolutions(torsos.NATURE, 16), (36, 36)),
    (torsos.Convolutions(torsos.SMALL, 16), (18, 18)),
    (torsos.Impala((4,), 16), (5, 6, 3)),
  ],
)
def test_a_torso_within_a_loop_has_the_parameters_and_gradients_of_the_one_outside(torso, shape):
  images = jax.random.randint(jax.random.key(0), (3, *shape), 0, 255).astype(jnp.uint8)
  params = jax.jit(torso.init)(jax.random.key(1), images)

  def loss(params, module):
    return jnp.sum(jnp.square(module.apply(params, images)))

  step = jax.jit(jax.value_and_grad(loss), static_argnums=1)
  expected, actual = step(params, torso), step(params, torso.clone(looped=True))
  largest = max(np.abs(x).max() for x in jax.tree.leaves(expected))

  def check(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * largest)

  jax.tree.map(check, actual, expected)


@pytest.mark.parametrize(
  'strides, padding',
  [((2, 2), 'VALID'), ((1, 3), 'VALID'), ((3, 3), 'SAME'), ((1, 1), 'CIRCULAR')],
)
def test_other_convolutions_in_a_loop_are_refused(strides, padding):
  with pytest.raises(ValueError, match='in_loop supports padding VALID with a stride that divides'):
    convolution.in_loop(jnp.zeros((1, 9, 9, 3)), jnp.zeros((3, 3, 3, 1)), strides, padding)


@pytest.mark.parametrize('module', [torsos.Convolutions(torsos.SMALL, 8), torsos.Impala((2, 3), 8)])
@pytest.mark.parametrize('layer_norm', [False, True])
def test_a_large_batch_has_the_features_and_the_gradient_of_its_images(module, layer_norm):
  module = module.clone(layer_norm=layer_norm)
  images = np.random.default_rng(0).integers(0, 256, (150, 36, 36), np.uint8)
  params = module.init(jax.random.key(0), images[:1])

  @jax.jit
  def features_and_gradient(images):
    features, pull = jax.vjp(lambda params: module.apply(params, images), params)
    return features, pull(jnp.ones_like(features))[0]

  features, gradient = features_and_gradient(images)
  parts = [features_and_gradient(part) for part in np.split(images, 10)]
  np.testing.assert_allclose(features, np.concatenate([f for f, _ in parts]), rtol=1e-4, atol=1e-4)
  total = jax.tree.map(lambda *x: sum(x), *(g for _, g in parts))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max()),
    gradient,
    total,
  )
