"""Architecture search: controllers propose networks, evaluators train them, a server has the policy.

After Balaprakash et al. 2019, "Scalable Reinforcement-Learning-Based Neural Architecture Search". A
network is a sequence of choices, its reward the accuracy that it reaches in a short training. The
controllers send policy gradients to the server whenever they have one, and wait for nobody.
"""

import functools
import itertools
import threading

import launchpad as lp
import numpy as np

FUNCTIONS = {  # And their derivatives.
  'identity': (lambda z: z, np.ones_like),
  'tanh': (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
  'relu': (lambda z: np.maximum(z, 0), lambda z: 1.0 * (z > 0)),
  'sin': (np.sin, np.cos),
}
# Of three layers, the units (0: no layer) and the function of each.
CHOICES = ((0, 4, 16, 64), tuple(FUNCTIONS)) * 3


def accuracy(network, steps=200):
  """Returns the accuracy on other samples, after some steps of RMSProp on the logistic loss."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(1500, 4))
  y = np.sin(3 * x[:, :1]) * x[:, 1:2] > 0
  layers = [network[k : k + 2] for k in range(0, len(network), 2) if network[k]]
  sizes = [4, *(units for units, _ in layers), 1]
  functions = [FUNCTIONS[name] for _, name in layers]
  weights = [rng.normal(size=(n + 1, m)) / np.sqrt(n + 1) for n, m in itertools.pairwise(sizes)]
  squares = [np.zeros_like(w) for w in weights]

  def forward(rows):
    inputs, sums = [], [x[rows]]
    for w, (function, _) in zip(weights, [FUNCTIONS['identity'], *functions], strict=True):
      inputs.append(np.insert(function(sums[-1]), 0, 1, axis=1))  # The first one is of the bias.
      sums.append(inputs[-1] @ w)
    return inputs, sums

  for _ in range(steps):
    rows = rng.integers(1000, size=64)
    inputs, sums = forward(rows)
    error = 1 / (1 + np.exp(-sums[-1])) - y[rows]
    for k in reversed(range(len(weights))):
      gradient = inputs[k].T @ error
      if k:
        error = error @ weights[k][1:].T * functions[k - 1][1](sums[k])
      squares[k] += 0.1 * (gradient**2 - squares[k])
      weights[k] -= 0.01 * gradient / np.sqrt(squares[k] + 1e-8)
  return np.mean((forward(slice(1000, None))[1][-1] > 0) == y[1000:])


class Evaluator:
  def __init__(self):
    self._accuracy = functools.cache(accuracy)

  def reward(self, network):
    return float(self._accuracy(network))


class Server:
  """Has the policy: the logits of each choice. It follows gradients as they come."""

  def __init__(self, num_controllers, num_networks, learning_rate):
    self._controllers, self._num_networks = num_controllers, num_networks
    self._learning_rate = learning_rate
    self._lock, self._done = threading.Lock(), threading.Event()
    self._logits, self._rewards = [np.zeros(len(choice)) for choice in CHOICES], []

  def logits(self):
    return self._logits

  def update(self, gradients, rewards):
    with self._lock:
      for logits, gradient in zip(self._logits, gradients, strict=True):
        logits += self._learning_rate * gradient
      self._rewards += rewards
      goes_on = len(self._rewards) < self._num_networks
      self._controllers -= not goes_on
      if not self._controllers:
        self._done.set()
      return goes_on

  def run(self):
    self._done.wait()
    first, *_, last = np.array_split(self._rewards, 4)
    print(f'mean reward of the first quarter {first.mean():.3f}, of the last {last.mean():.3f}')
    print('network:', *(c[x.argmax()] for c, x in zip(CHOICES, self._logits, strict=True)))
    lp.stop()


class Controller:
  def __init__(self, server, evaluators, seed, batch_size=8, entropy_cost=0.01):
    self._server, self._evaluators, self._rng = server, evaluators, np.random.default_rng(seed)
    self._batch_size, self._entropy_cost = batch_size, entropy_cost

  def run(self):
    goes_on = True
    while goes_on:
      policy = [np.exp(x) / np.exp(x).sum() for x in self._server.logits()]
      chosen = np.array([self._rng.choice(len(p), self._batch_size, p=p) for p in policy])
      calls = []
      for row in chosen.T:
        network = tuple(c[k] for c, k in zip(CHOICES, row, strict=True))
        evaluator = self._evaluators[row.sum() % len(self._evaluators)]  # May know it already.
        calls.append(evaluator.futures.reward(network))
      rewards = np.array([call.result() for call in calls])
      advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
      gradients = [self.gradient(p, k, advantages) for p, k in zip(policy, chosen, strict=True)]
      goes_on = self._server.update(gradients, rewards.tolist())

  def gradient(self, policy, chosen, advantages):
    """Returns the gradient of expected reward and entropy with respect to the logits of a choice."""
    entropy = -policy * (np.log(policy) - policy @ np.log(policy))
    reward = advantages @ (np.eye(len(policy))[chosen] - policy) / len(chosen)
    return reward + self._entropy_cost * entropy


def make_program(num_controllers=2, num_evaluators=2, num_networks=320, learning_rate=2.0):
  program = lp.Program('architecture_search')
  with program.group('evaluator'):
    evaluators = [program.add_node(lp.CourierNode(Evaluator)) for _ in range(num_evaluators)]
  server = lp.CourierNode(Server, num_controllers, num_networks, learning_rate)
  server = program.add_node(server, label='server')
  with program.group('controller'):
    for seed in range(num_controllers):
      program.add_node(lp.PyClassNode(Controller, server, evaluators, seed))
  return program
