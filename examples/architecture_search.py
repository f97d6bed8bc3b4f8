"""Architecture search: controllers propose networks, evaluators train them, a server has the policy.

After Balaprakash et al. 2019, "Scalable Reinforcement-Learning-Based Neural Architecture Search". A
network is a sequence of choices, its reward the accuracy that it reaches in a short training. The
controllers send policy gradients to the server whenever they have one, and wait for nobody.
"""

import functools
import threading

import launchpad as lp
import numpy as np

LAYERS = 3
# For each layer its units (0: no layer), its activation, and whether its input is added to its output.
CHOICES = ((0, 4, 16, 64), ('identity', 'tanh', 'relu', 'sin'), (False, True)) * LAYERS


class Evaluator:
  """Trains networks, each once, and returns their accuracy on other samples."""

  def __init__(self, train_steps):
    self._train = functools.cache(lambda: make_train(train_steps))  # Compiled at the first call.
    self._known, self._lock = {}, threading.Lock()

  def reward(self, choices):
    with self._lock:  # Each call has a thread of its own.
      if choices not in self._known:
        self._known[choices] = float(self._train()(np.array(choices)))
      return self._known[choices]


class Server:
  """Has the policy: the logits of the alternatives of each choice. It follows gradients as they come."""

  def __init__(self, num_networks, learning_rate):
    self._num_networks, self._learning_rate = num_networks, learning_rate
    self._lock, self._done = threading.Lock(), threading.Event()
    self._logits, self._rewards = [np.zeros(len(each)) for each in CHOICES], []

  def logits(self):
    return self._logits

  def update(self, gradients, rewards):
    with self._lock:
      steps = zip(self._logits, gradients, strict=True)
      self._logits = [logits + self._learning_rate * gradient for logits, gradient in steps]
      self._rewards += rewards
    if len(self._rewards) >= self._num_networks:
      self._done.set()

  def run(self):
    self._done.wait()
    first, *_, last = np.array_split(self._rewards, 4)
    print(f'mean reward of the first quarter {first.mean():.3f}, of the last {last.mean():.3f}')
    best = [alternatives[k.argmax()] for alternatives, k in zip(CHOICES, self._logits, strict=True)]
    print('layers:', *zip(*[iter(best)] * 3, strict=True))
    lp.stop()


class Controller:
  def __init__(self, server, evaluators, seed, batch_size, entropy_cost=0.01):
    self._server, self._evaluators = server, evaluators
    self._rng = np.random.default_rng(seed)
    self._batch_size, self._entropy_cost = batch_size, entropy_cost

  def run(self):
    while True:  # Until the server stops the program.
      policy = [np.exp(each) / np.exp(each).sum() for each in self._server.logits()]
      chosen = np.array([self._rng.choice(len(p), self._batch_size, p=p) for p in policy])
      calls = [  # The same network goes to the same evaluator.
        self._evaluators[sum(network) % len(self._evaluators)].futures.reward(network)
        for network in map(tuple, chosen.T.tolist())
      ]
      rewards = np.array([call.result() for call in calls])
      advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
      gradients = [self.gradient(*each, advantages) for each in zip(policy, chosen, strict=True)]
      self._server.update(gradients, rewards.tolist())

  def gradient(self, policy, chosen, advantages):
    """Returns the gradient of expected reward and entropy with respect to the logits of a choice."""
    entropy = -policy * (np.log(policy) - policy @ np.log(policy))
    reward = advantages @ (np.eye(len(policy))[chosen] - policy) / len(chosen)
    return reward + self._entropy_cost * entropy


def make_train(train_steps):
  """Returns a compiled function from choices to accuracy; shapes do not depend on the choices."""
  import jax
  import jax.numpy as jnp
  import optax

  x = np.random.default_rng(0).normal(size=(1500, 4)).astype(np.float32)
  y = 1 * (np.sin(3 * x[:, 0]) * x[:, 1] > 0)
  width = max(CHOICES[0])
  activations = (lambda z: z, jnp.tanh, jax.nn.relu, jnp.sin)
  optimizer = optax.adam(1e-2)

  def logits(params, choices, inputs):
    hidden = jnp.pad(inputs, ((0, 0), (0, width - inputs.shape[1])))
    for (weights, bias), layer in zip(params, choices.reshape(LAYERS, 3), strict=True):
      units, activation, adds = jnp.array(CHOICES[0])[layer[0]], layer[1], layer[2]
      new = jax.lax.switch(activation, activations, hidden @ weights + bias)
      new = jnp.where(jnp.arange(width) < units, new, 0.0) + adds * hidden
      hidden = jnp.where(units > 0, new, hidden)
    return hidden[:, :2]

  def loss(params, choices, rows):
    cross_entropy = optax.softmax_cross_entropy_with_integer_labels
    return cross_entropy(logits(params, choices, jnp.array(x)[rows]), jnp.array(y)[rows]).mean()

  @jax.jit
  def train(choices):
    key, first = jax.random.split(jax.random.key(0))
    weights = jax.random.normal(first, (LAYERS, width, width)) / np.sqrt(width)
    params = [(each, jnp.zeros(width)) for each in weights]

    def step(carry, key):
      params, state = carry
      gradient = jax.grad(loss)(params, choices, jax.random.randint(key, (64,), 0, 1000))
      updates, state = optimizer.update(gradient, state)
      return (optax.apply_updates(params, updates), state), None

    keys = jax.random.split(key, train_steps)
    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    return (logits(params, choices, x[1000:]).argmax(1) == y[1000:]).mean()

  return train


def make_program(
  num_controllers: int = 2,
  num_evaluators: int = 2,
  num_networks: int = 320,
  train_steps: int = 100,
  batch_size: int = 8,
  learning_rate: float = 2.0,
):
  program = lp.Program('architecture_search')
  with program.group('evaluator'):
    evaluators = [
      program.add_node(lp.CourierNode(Evaluator, train_steps)) for _ in range(num_evaluators)
    ]
  server = program.add_node(lp.CourierNode(Server, num_networks, learning_rate), label='server')
  with program.group('controller'):
    for seed in range(num_controllers):
      program.add_node(lp.PyClassNode(Controller, server, evaluators, seed, batch_size))
  return program
