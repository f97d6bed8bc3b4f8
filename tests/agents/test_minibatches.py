"""Minibatches hold every sample once in an epoch, each time with others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agents import minibatches
from agents.axes import swapped
from agents.ppo.agent import Samples
from agents.ppo.config import PPOConfig

EPOCHS, SAMPLES, MINIBATCHES = 3, 24, 4


def numbered_samples(num_rows=2):
  """Returns samples in which every leaf has the number of its sample."""
  number = jnp.broadcast_to(jnp.arange(SAMPLES)[:, None], (SAMPLES, num_rows))
  return Samples(*[number] * 8, core_state={'lstm': jnp.arange(SAMPLES)})


def taken(key=0, epochs=EPOCHS):
  """Returns the numbers of the samples of each minibatch, `[epochs, M, N / M]`."""
  orders = minibatches.orders(jax.random.key(key), epochs, SAMPLES, MINIBATCHES)
  assert orders.shape == (epochs * MINIBATCHES, SAMPLES // MINIBATCHES)
  found = jax.jit(jax.vmap(minibatches.take, (None, 0)))(numbered_samples(), orders)
  return np.asarray(found.valid)[..., 0].reshape(epochs, MINIBATCHES, -1)


def test_an_epoch_takes_every_sample_once_and_no_two_epochs_the_same_minibatches():
  epochs = taken()
  for epoch in epochs:
    assert sorted(epoch.ravel()) == list(range(SAMPLES))
  divisions = [{frozenset(minibatch) for minibatch in epoch.tolist()} for epoch in epochs]
  assert not divisions[0] & divisions[1] and not divisions[1] & divisions[2]


def test_a_key_decides_the_minibatches():
  np.testing.assert_array_equal(taken(key=1), taken(key=1))
  assert np.any(taken(key=1) != taken(key=2))


def test_every_sample_may_be_in_every_minibatch_with_every_other_one():
  """Except with those of its own group, whose members are all in different minibatches."""
  epochs = taken(epochs=200)
  places = np.argsort(epochs.reshape(200, SAMPLES), axis=1) // (SAMPLES // MINIBATCHES)
  for sample in range(SAMPLES):
    shares = np.bincount(places[:, sample], minlength=MINIBATCHES) / 200
    np.testing.assert_allclose(shares, 1 / MINIBATCHES, atol=0.13)
  together = np.mean(places[:, :, None] == places[:, None], axis=0)
  group = np.arange(SAMPLES) // MINIBATCHES
  elsewhere = group[:, None] != group
  np.testing.assert_allclose(together[elsewhere], 1 / MINIBATCHES, atol=0.15)
  assert np.all(together[~elsewhere & ~np.eye(SAMPLES, dtype=bool)] == 0)


def test_all_of_a_sample_is_taken_together():
  order = minibatches.orders(jax.random.key(0), 1, SAMPLES, MINIBATCHES)[1]
  minibatch = minibatches.take(numbered_samples(), order)
  number = np.asarray(minibatch.core_state['lstm'])
  for leaf in minibatch[:-1]:
    np.testing.assert_array_equal(leaf, np.tile(number[:, None], 2))


class FramesOfRows:
  """A network whose core state before a row is its observation."""

  def core_state_of_rows(self, core_state, timestep):
    del core_state
    return {'frames': timestep}


@pytest.mark.parametrize('whole', [False, True])
def test_samples_are_unrolls_or_their_rows_one_by_one(whole):
  unrolls = jnp.arange(SAMPLES * 2).reshape(SAMPLES, 2)
  observation = jnp.stack([unrolls, unrolls], axis=-1)
  rows = swapped(Samples(observation, *[unrolls] * 7, core_state=None))
  config = PPOConfig(minibatch_of='unrolls' if whole else 'transitions')
  core_state = {'frames': observation[:, 0]}
  samples = minibatches.make_samples(config, rows, core_state, FramesOfRows())
  expected = unrolls if whole else unrolls.reshape(-1, 1)
  np.testing.assert_array_equal(samples.advantage, expected)
  assert samples.timestep.shape == (*expected.shape, 2)
  np.testing.assert_array_equal(samples.core_state['frames'], samples.timestep[:, 0])


def test_a_batch_that_does_not_divide_is_rejected():
  message = r'^--num_minibatches=5 does not divide a batch of 24 samples; make the batch a multiple'
  with pytest.raises(ValueError, match=message):
    minibatches.orders(jax.random.key(0), 1, SAMPLES, 5)
