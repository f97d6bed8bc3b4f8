"""The Launchpad programs of `examples/` outside of reinforcement learning."""

import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.running import processes
from examples import architecture_search, kernel_matrix
from rundir import run_end
from tests.programs_under_test import ROOT, launch
from tests.waiting import DEADLINE


def empirical_tangent_kernel(sequences, units, networks):
  """Returns the mean over wide recurrent networks of the products of their gradients."""
  import jax
  import jax.numpy as jnp

  size = sequences.shape[2]

  def output(weights, sequence):
    hidden = jnp.zeros(units)
    for inputs in sequence:
      before = weights['w'] @ hidden / np.sqrt(units) + weights['u'] @ inputs / np.sqrt(size)
      hidden = np.sqrt(2) * jax.nn.relu(before + weights['b'])
    return weights['v'] @ hidden / np.sqrt(units)

  @jax.jit
  def kernel(key):
    keys = jax.random.split(key, 4)
    shapes = {'w': (units, units), 'u': (units, size), 'b': (units,), 'v': (units,)}
    weights = {
      name: jax.random.normal(k, shape)
      for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    gradients = jax.vmap(jax.grad(output), (None, 0))(weights, sequences)
    flat = jnp.concatenate([g.reshape(len(sequences), -1) for g in gradients.values()], axis=1)
    return flat @ flat.T

  return np.mean([kernel(jax.random.key(k)) for k in range(networks)], axis=0)


def test_the_kernel_is_the_tangent_kernel_of_wide_recurrent_networks():
  sequences = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
  found = kernel_matrix.kernel(sequences, sequences)
  expected = empirical_tangent_kernel(sequences, units=512, networks=12)
  np.testing.assert_allclose(found, expected, rtol=0.1)
  np.testing.assert_allclose(found, found.T, rtol=1e-6)
  # The other terms alone are not: without the recurrent gradient it differs by more than that.
  without = kernel_matrix.kernel(sequences, sequences, recurrent=0.5)
  assert np.abs(without / expected - 1).max() > 0.2


def test_blocks_are_those_of_the_whole_kernel():
  x = np.random.default_rng(1).normal(size=(5, 3, 2))
  whole = kernel_matrix.kernel(x, x)
  block = kernel_matrix.Worker().block(x[:2], x[3:])
  np.testing.assert_allclose(block, whole[:2, 3:], rtol=1e-12)


def test_a_kernel_that_knows_the_labels_classifies_and_one_that_knows_nothing_does_not():
  labels = np.repeat([1.0, -1.0], 50)
  assert kernel_matrix.accuracy(np.outer(labels, labels), labels) == 1.0
  assert kernel_matrix.accuracy(np.eye(100), labels) < 0.6


@pytest.mark.slow
def test_the_kernel_matrix_classifies_faces(tmp_path):
  process = launch('--program=examples/kernel_matrix.py:make_program', f'--run_dir={tmp_path}/run')
  assert process.returncode == 0, process.stderr
  found = re.search(
    r'^\[reducer/0\] 10 blocks; accuracy ([\d.]+)%, with a Gaussian kernel ([\d.]+)%$',
    process.stdout,
    re.MULTILINE,
  )
  assert float(found[1]) >= 85 and float(found[2]) >= 70
  assert process.stdout.splitlines()[-1] == run_end.result(str(tmp_path / 'run'))
  assert processes(str(tmp_path / 'run')) == []


def test_the_gradient_of_a_controller_is_that_of_the_expected_reward():
  """For one choice, against the derivative of sum_a pi(a) r(a) + cost H(pi), by differences."""
  logits, rewards, cost = np.array([0.3, -0.2, 0.5]), np.array([1.0, 0.0, 2.0]), 0.1

  def softmax(x):
    return np.exp(x) / np.exp(x).sum()

  def objective(x):
    policy = softmax(x)
    return policy @ rewards - cost * policy @ np.log(policy)

  step = 1e-5 * np.eye(3)
  exact = [(objective(logits + e) - objective(logits - e)) / 2e-5 for e in step]
  policy = softmax(logits)
  chosen = np.random.default_rng(0).choice(3, 400_000, p=policy)
  controller = architecture_search.Controller(None, [], 0, 8, entropy_cost=cost)
  found = controller.gradient(policy, chosen, rewards[chosen] - policy @ rewards)
  np.testing.assert_allclose(found, exact, atol=0.01)


def test_the_gradient_of_a_network_lowers_its_loss_and_layers_without_units_do_not_count():
  """Each function can be followed: an untrained network guesses, a trained one does not."""
  for name in ('tanh', 'relu', 'sin'):
    network = (16, name, 0, 'sin', 16, name)
    before = architecture_search.accuracy(network, 0)
    assert architecture_search.accuracy(network, 200) > max(before, 0.6) + 0.1
    assert architecture_search.accuracy((*network[:2], 0, 'tanh', *network[4:]), 200) == (
      architecture_search.accuracy(network, 200)
    )


def test_a_network_is_trained_once(monkeypatch):
  network = (4, 'tanh', 0, 'relu', 0, 'relu')
  trained = []
  monkeypatch.setattr(architecture_search, 'accuracy', lambda n: trained.append(n) or 0.5)
  evaluator = architecture_search.Evaluator()
  assert evaluator.reward(network) == evaluator.reward(network) == 0.5
  assert trained == [network]


def test_the_server_follows_gradients_upwards(monkeypatch):
  server = architecture_search.Server(num_controllers=2, num_networks=4, learning_rate=0.1)
  gradients = [np.eye(len(choices))[0] for choices in architecture_search.CHOICES]
  assert server.update(gradients, [0.5, 0.6, 0.5])
  for _ in range(2):  # Both controllers are told that it has enough.
    assert not server.update(gradients, [0.7])
  for logits in server.logits():
    assert logits[0] > 0.25 and not logits[1:].any()
  monkeypatch.setattr(architecture_search.lp, 'stop', lambda: None)
  server.run()


@pytest.mark.slow
def test_an_architecture_search_runs_to_its_end(tmp_path):
  process = launch(
    *('--program=examples/architecture_search.py:make_program', f'--run_dir={tmp_path}/run'),
    '--num_networks=32',
  )
  assert process.returncode == 0, process.stderr
  assert re.search(r'\[server/0\] mean reward of the first quarter 0\.\d+, of the', process.stdout)
  assert process.stdout.splitlines()[-1] == run_end.result(str(tmp_path / 'run'))


def quarters(process):
  assert process.returncode == 0, process.stderr
  return map(
    float, re.search(r'first quarter ([\d.]+), of the last ([\d.]+)', process.stdout).groups()
  )


@pytest.mark.nightly
def test_a_policy_gradient_finds_better_networks_than_random_search(tmp_path):
  found = {}
  for rate in ('learned', 'random'):
    flags = ['--learning_rate=0'] if rate == 'random' else []
    process = launch(
      *('--program=examples/architecture_search.py:make_program', f'--run_dir={tmp_path}/{rate}'),
      *flags,
    )
    found[rate] = list(quarters(process))
  assert found['learned'][1] > found['random'][1] + 0.1


_PLAIN = """
import launchpad as lp
from examples import {name}
lp.launch({name}.make_program({options}), launch_type='local_mt').wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  'name, options, printed',
  [
    ('kernel_matrix', 'block_size=100', '3 blocks; accuracy '),
    ('architecture_search', 'num_networks=16', 'mean reward of the first quarter '),
  ],
)
def test_launchpads_own_launch_runs_them(name, options, printed):
  process = subprocess.run(
    [sys.executable, '-c', _PLAIN.format(name=name, options=options)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert process.returncode == 0, process.stderr
  assert process.stdout.startswith(printed)
