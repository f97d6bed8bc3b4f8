"""Sebulba in one file: actor threads, a queue of unrolls, a learner thread, in JAX.

  .venv/bin/python examples/sebulba_in_one_file.py
  .venv/bin/python examples/sebulba_in_one_file.py --env=cartpole --seed=1

This is the Sebulba of Podracer (Hessel et al. 2021) with the V-trace actor-critic of IMPALA (Espeholt et
al. 2018), in one process and without anything else of this repository:

  actor threads  ---- unrolls ---->  queue  ---- batches ---->  learner thread
        ^                                                             |
        '------------------------ parameters -------------------------'

An actor thread steps a batch of environments on the CPU and chooses its actions on an actor device. The
learner thread updates the parameters on the learner devices and publishes them to the actor devices. The
main thread evaluates them. docs/one_file.md walks through the file, and names the file of the repository
that each part became.

In shapes, N is the number of environments of one actor, T the number of transitions in an unroll, and B
the number of unrolls in a batch.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import queue
import sys
import threading
import time
from typing import Any, NamedTuple

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Array = Any  # Of NumPy or JAX.
Params = Any  # A nest of arrays.


@dataclasses.dataclass(frozen=True)
class Options:
  """Each is a flag of the command."""

  env: str = 'catch'  # A name of ENVIRONMENTS.
  seed: int = 0
  num_steps: int = 200_000  # Transitions to learn from.
  num_actors: int = 2  # Threads.
  envs_per_actor: int = 16
  actor_devices: int = 1  # Of several devices, the first ones act and the others learn.
  unroll_length: int = 20  # T.
  batch_size: int = 32  # B, a multiple of envs_per_actor.
  queue_size: int = 2  # In unrolls of a whole actor; more of them decouple more and are older.
  learning_rate: float = 2e-3  # Decays linearly to 0.
  max_gradient_norm: float = 40.0
  discount: float = 0.99
  rho_bar: float = 1.0
  c_bar: float = 1.0
  baseline_cost: float = 0.5
  entropy_cost: float = 0.01
  reward_scale: float = 1.0
  eval_seconds: float = 2.0  # From one evaluation to the next.
  eval_episodes: int = 64


# ---- Rows: what flows from the environments to the loss, and the time index of each field -------------

FIRST, MID, LAST = np.uint8(0), np.uint8(1), np.uint8(2)  # As dm_env.StepType.


class Timestep(NamedTuple):
  """What environments return. Every field has the leading axes `[N]`, or `[T+1, B]` in a batch.

  Reward and discount *arrived with* the observation, so they belong to the transition into this row.
  A LAST row is a row as well: it shows the observation that ended the episode.
  """

  step_type: Array  # uint8: FIRST, MID or LAST.
  reward: Array  # float32, as the environment gave it; 0 in FIRST rows.
  discount: (
    Array  # float32; 0 where the episode terminated, 1 elsewhere, also where it was cut off.
  )
  observation: Array  # float32 `[..., features]`.


class Rows(NamedTuple):
  """Timesteps, and what the actor did on each of them."""

  timestep: Timestep
  action: Array  # int32, the reply to this observation; environments ignore it in LAST rows.
  behaviour_logits: Array  # float32 `[..., actions]`, of the policy mu that drew the action.
  policy_version: Array  # int32, the number of updates behind the parameters of mu.


# ---- Environments: batches, whose episodes begin again by themselves ----------------------------------


class Catch:
  """N games of Catch: move the paddle in the lowest of ten rows under the falling ball."""

  num_features, num_actions = 10 * 5, 3

  def __init__(self, num_envs: int, seed: int):
    self._random = np.random.default_rng(seed)
    self._games = np.arange(num_envs)

  def reset(self) -> Timestep:
    self._row = 0
    self._ball = self._random.integers(5, size=len(self._games))
    self._paddle = np.full(len(self._games), 2)
    return self._timestep(FIRST)

  def step(self, action: np.ndarray) -> Timestep:
    if self._row == 9:  # The last timestep was LAST. The action that replied to it has no effect.
      return self.reset()
    self._row += 1
    self._paddle = np.clip(self._paddle + action - 1, 0, 4)
    return self._timestep(LAST if self._row == 9 else MID)

  def _timestep(self, step_type: np.uint8) -> Timestep:
    board = np.zeros((len(self._games), 10, 5), np.float32)
    board[self._games, self._row, self._ball] = 1
    board[self._games, 9, self._paddle] = 1
    ended = np.full(len(self._games), step_type == LAST)
    reward = ended * np.where(self._ball == self._paddle, np.float32(1), np.float32(-1))
    step_types = np.full(len(self._games), step_type)
    return Timestep(step_types, reward, 1 - ended.astype(np.float32), board.reshape(-1, 50))


class CartPole:
  """N CartPoles of Gymnasium: 1 for every step, until the pole falls or 500 steps are over."""

  num_features, num_actions = 4, 2

  def __init__(self, num_envs: int, seed: int):
    self._envs = gymnasium.make_vec('CartPole-v1', num_envs)
    self._envs.reset(seed=seed)

  def reset(self) -> Timestep:
    observation, _ = self._envs.reset()
    self._ended = np.zeros(len(observation), bool)
    ones = np.ones(len(observation), np.float32)
    return Timestep(np.full(len(observation), FIRST), 0 * ones, ones, observation)

  def step(self, action: np.ndarray) -> Timestep:
    # The step after the end of an episode ignores the action and begins another one, as rows have it.
    observation, reward, fell, timed_out, _ = self._envs.step(action)
    step_type = np.where(self._ended, FIRST, np.where(fell | timed_out, LAST, MID))
    self._ended = step_type == LAST
    # After 500 steps the pole still stands. With discount 1, the loss bootstraps from that row's value.
    return Timestep(step_type, reward.astype(np.float32), 1 - fell.astype(np.float32), observation)


# The classes, and the options in which each of them differs from the defaults.
ENVIRONMENTS: dict[str, tuple[type, dict[str, Any]]] = {
  'catch': (Catch, {}),
  # Returns reach 100, and the gradient of such values would drown the policy's in the shared layers.
  'cartpole': (CartPole, {'num_steps': 1_000_000, 'reward_scale': 0.1}),
}


# ---- The agent: a network, V-trace targets, the loss, an update ---------------------------------------


class Network(nn.Module):
  """Maps observations `[..., features]` to logits `[..., actions]` and values `[...]`."""

  num_actions: int

  @nn.compact
  def __call__(self, x: Array) -> tuple[Array, Array]:
    for size in (128, 64):
      x = nn.relu(nn.Dense(size, kernel_init=nn.initializers.he_normal())(x))
    # Logits near zero: the first policy tries all actions alike.
    small = nn.initializers.orthogonal(0.01)
    logits = nn.Dense(self.num_actions, kernel_init=small, name='logits')(x)
    return logits, nn.Dense(1, name='value')(x)[..., 0]


def vtrace(
  values: Array, rewards: Array, discounts: Array, rhos: Array, valid: Array, options: Options
) -> tuple[Array, Array]:
  """Returns the targets of the values and the advantages of the actions, `[T, B]` each.

  Args:
    values: `[T+1, B]`, V of rows 0 to T.
    rewards: `[T, B]`; index t holds the reward of transition t, which arrived with row t+1.
    discounts: `[T, B]`, likewise, times gamma.
    rhos: `[T, B]`, pi(action) / mu(action) in row t.
    valid: bool `[T, B]`, false where row t is LAST.
    options: rho_bar clips the weight of a row's own error and decides of which policy the values are;
      c_bar clips the weights with which later errors count in earlier rows.
  """
  value, next_value = values[:-1], values[1:]
  rho = jnp.minimum(options.rho_bar, rhos)
  # From a LAST row to the FIRST row after it nothing happened: such a step has no error, and the zero
  # in `passes` keeps the errors of the next episode out of this one.
  error = jnp.where(valid, rho * (rewards + discounts * next_value - value), 0)
  passes = jnp.where(valid, discounts * jnp.minimum(options.c_bar, rhos), 0)

  def add_later_errors(later: Array, row: tuple[Array, Array]) -> Any:
    error, passes = row
    total = error + passes * later
    return total, total

  _, totals = jax.lax.scan(
    add_later_errors, jnp.zeros_like(value[0]), (error, passes), reverse=True
  )
  targets = value + totals
  # An advantage compares V with one reward and the *target* after it, which is corrected as well. The
  # row after the last transition has no target, only its value.
  next_target = jnp.concatenate([targets[1:], values[-1:]])
  return targets, jnp.where(valid, rho * (rewards + discounts * next_target - value), 0)


def loss(
  params: Params, network: Network, options: Options, rows: Rows
) -> tuple[Array, dict[str, Array]]:
  """Returns the loss of a batch `[T+1, B]` and its metrics, all float32 `[]`."""
  step_type, reward, discount, observation = rows.timestep
  logits, values = network.apply(params, observation)
  # Transition t leads from row t to row t+1, so there is one less than rows: the last row has no
  # transition of its own. Its value is the bootstrap of the others.
  valid = step_type[:-1] != LAST
  log_policy = jax.nn.log_softmax(logits[:-1])
  log_behaviour = jax.nn.log_softmax(rows.behaviour_logits[:-1])
  action = rows.action[:-1, :, None]
  log_pi = jnp.take_along_axis(log_policy, action, axis=-1)[..., 0]
  log_mu = jnp.take_along_axis(log_behaviour, action, axis=-1)[..., 0]
  rhos = jnp.exp(log_pi - log_mu)
  # Row t+1 holds what transition t brought.
  rewards, discounts = options.reward_scale * reward[1:], options.discount * discount[1:]
  # Targets and weights are what is learned from; the gradient is that of log pi and of V alone.
  targets, advantages = jax.lax.stop_gradient(
    vtrace(values, rewards, discounts, rhos, valid, options)
  )

  def mean(x: Array) -> Array:
    """Returns the mean over transitions; over several devices, XLA makes it one all-reduce."""
    return jnp.sum(jnp.where(valid, x, 0)) / jnp.maximum(jnp.sum(valid), 1)

  policy_loss = mean(-advantages * log_pi)
  baseline_loss = mean(0.5 * jnp.square(targets - values[:-1]))
  entropy = mean(-jnp.sum(jnp.exp(log_policy) * log_policy, axis=-1))
  total = policy_loss + options.baseline_cost * baseline_loss - options.entropy_cost * entropy
  return total, {'loss': total, 'entropy': entropy, 'rho': mean(rhos)}


def make_optimizer(options: Options) -> optax.GradientTransformation:
  """Returns Adam without a learning rate, which `update` gets as an argument."""
  return optax.chain(optax.clip_by_global_norm(options.max_gradient_norm), optax.scale_by_adam())


def update(
  network: Network, options: Options, state: tuple[Params, Any], rows: Rows, learning_rate: Array
) -> tuple[tuple[Params, Any], dict[str, Array]]:
  """Takes one gradient step on a batch; returns the next (params, optimizer state) and the metrics."""
  params, opt_state = state
  gradients, metrics = jax.grad(loss, has_aux=True)(params, network, options, rows)
  steps, opt_state = make_optimizer(options).update(gradients, opt_state)
  params = jax.tree.map(lambda x, step: x - learning_rate * step, params, steps)
  return (params, opt_state), metrics


@functools.partial(jax.jit, static_argnums=0)
def act(
  network: Network, params: Params, observation: Array, key: Array
) -> tuple[Array, Array, Array]:
  """Returns actions `[N]` drawn from the policy, its logits `[N, actions]`, and the next key."""
  key, draw = jax.random.split(key)
  logits, _ = network.apply(params, observation)
  return jax.random.categorical(draw, logits), logits, key


@functools.partial(jax.jit, static_argnums=0)
def best_action(network: Network, params: Params, observation: Array) -> Array:
  """Returns the most probable actions `[N]`, for evaluation."""
  return jnp.argmax(network.apply(params, observation)[0], axis=-1)


# ---- The threads --------------------------------------------------------------------------------------


class Shared:
  """What the threads share. One thread replaces an attribute as a whole, so reading needs no lock."""

  def __init__(self, queue_size: int):
    self.stop = threading.Event()  # Every wait looks at it, so the program ends within moments.
    self.unrolls: queue.Queue[Rows] = queue.Queue(queue_size)
    self.newest: dict[jax.Device, tuple[int, Params]] = {}  # Version and parameters.
    self.progress: tuple[int, dict[str, Any]] = (0, {})  # Steps learned from, metrics.

  def publish(self, version: int, params: Params, devices: list[jax.Device]) -> None:
    """Gives the actors these parameters, on their devices."""
    self.newest = {device: (version, jax.device_put(params, device)) for device in devices}

  def put(self, unroll: Rows) -> None:
    """Waits for room in the queue. That is the back-pressure: nothing is dropped, the actor stands."""
    while not self.stop.is_set():
      try:
        return self.unrolls.put(unroll, timeout=0.1)
      except queue.Full:
        pass

  def take(self) -> Rows | None:
    """Waits for an unroll; returns None at the end of the program."""
    while not self.stop.is_set():
      try:
        return self.unrolls.get(timeout=0.1)
      except queue.Empty:
        pass
    return None


def run_actor(
  shared: Shared, options: Options, network: Network, device: jax.Device, seed: int, key_seed: int
) -> None:
  """Plays N environments and puts unrolls of T+1 rows into the queue, until the end of the program.

  Several such threads share an actor device: while one steps its environments, another one's actions
  are computed.
  """
  make_environment, _ = ENVIRONMENTS[options.env]
  environment = make_environment(options.envs_per_actor, seed)
  timestep = environment.reset()
  key = jax.device_put(jax.random.key(key_seed), device)
  rows: list[Rows] = []
  while not shared.stop.is_set():
    # Newer parameters count from the next row on, also within an unroll. That is why a row keeps its
    # own logits and version, and V-trace corrects each row for itself.
    version, params = shared.newest[device]
    action, logits, key = act(network, params, timestep.observation, key)
    action = np.asarray(action)  # Waits for the device, and lets other threads run meanwhile.
    rows.append(Rows(timestep, action, logits, np.full(len(action), version, np.int32)))
    timestep = environment.step(action)
    if len(rows) == options.unroll_length + 1:
      shared.put(jax.tree.map(lambda *fields: np.stack(fields), *rows))
      # The row that only bootstraps here is the first one of the next unroll: every transition is
      # learned from once.
      rows = rows[-1:]


def run_learner(
  shared: Shared,
  options: Options,
  network: Network,
  state: tuple[Params, Any],
  devices: list[jax.Device],
  actor_devices: list[jax.Device],
) -> None:
  """Learns from batches of the queue and publishes the parameters after every update.

  With several devices, each of them holds the same parameters and a part of the batch. Because the loss
  is a mean over the whole batch, the compiled update sums the gradients over the devices by itself.
  """
  mesh = Mesh(np.array(devices), ('batch',))
  everywhere = NamedSharding(mesh, PartitionSpec())
  in_parts = NamedSharding(mesh, PartitionSpec(None, 'batch'))  # Of `[T+1, B, ...]`, along B.
  # The state is not donated: actors on the same device may still act with these very parameters.
  step = jax.jit(functools.partial(update, network, options), out_shardings=everywhere)
  state = jax.device_put(state, everywhere)
  steps = updates = 0
  while steps < options.num_steps:
    unrolls = [shared.take() for _ in range(options.batch_size // options.envs_per_actor)]
    if None in unrolls:
      return
    rows = jax.tree.map(lambda *fields: np.concatenate(fields, axis=1), *unrolls)
    # The policy lag: how many updates ago the parameters were current that chose these actions.
    lag = updates - rows.policy_version
    steps += int(np.sum(rows.timestep.step_type[:-1] != LAST))
    rate = options.learning_rate * max(0.0, 1 - steps / options.num_steps)
    state, metrics = step(state, jax.device_put(rows, in_parts), np.float32(rate))
    # Actors should get parameters, not the promise of some that are still being computed: they would
    # wait for the learner in the middle of an unroll.
    params, _ = jax.block_until_ready(state)
    updates += 1
    shared.publish(updates, params, actor_devices)
    lags = {'lag': lag.mean(), 'max_lag': lag.max()}
    shared.progress = steps, metrics | lags


def evaluate(network: Network, params: Params, environment: Any) -> np.ndarray:
  """Returns the returns `[N]` of the first episode of each environment under the best actions."""
  timestep = environment.reset()
  returns, running = np.zeros(len(timestep.reward)), np.ones(len(timestep.reward), bool)
  while running.any():  # The same number from each: counting all that end would favour short ones.
    timestep = environment.step(np.asarray(best_action(network, params, timestep.observation)))
    returns += running * timestep.reward
    running &= timestep.step_type != LAST
  return returns


def split_devices(options: Options) -> tuple[list[jax.Device], list[jax.Device]]:
  """Returns the devices that act and those that learn; a single one does both."""
  if options.batch_size % options.envs_per_actor:
    sys.exit(f'error: make --batch_size a multiple of --envs_per_actor={options.envs_per_actor}.')
  devices = jax.local_devices()
  if len(devices) == 1:
    return devices, devices
  if not 0 < options.actor_devices < len(devices):
    sys.exit(f'error: of {len(devices)} devices, --actor_devices must leave some to the learner.')
  actors, learners = devices[: options.actor_devices], devices[options.actor_devices :]
  if options.batch_size % len(learners):
    sys.exit(f'error: make --batch_size a multiple of the {len(learners)} devices that learn.')
  return actors, learners


def train(options: Options) -> np.ndarray:
  """Trains, prints a line for each evaluation, and returns the returns of the last one.

  Raises:
    Exception: whatever a thread raised; the others have ended by then.
  """
  actor_devices, learner_devices = split_devices(options)
  make_environment, _ = ENVIRONMENTS[options.env]
  network = Network(make_environment.num_actions)
  # Every consumer of random numbers has a seed of its own.
  sequence = np.random.SeedSequence(options.seed)
  seeds = [int(n) for n in sequence.generate_state(2 + 2 * options.num_actors) >> 1]
  params = network.init(jax.random.key(seeds[0]), np.zeros((1, make_environment.num_features)))
  state = params, make_optimizer(options).init(params)
  evaluation = make_environment(options.eval_episodes, seeds[1])
  shared = Shared(options.queue_size)
  shared.publish(0, params, actor_devices)
  began = time.monotonic()

  def report() -> np.ndarray:
    version, params = shared.newest[actor_devices[0]]
    returns = evaluate(network, params, evaluation)
    seconds, (steps, metrics) = time.monotonic() - began, shared.progress
    shown = ', '.join(f'{name} {value:.3g}' for name, value in metrics.items())
    print(
      f'{seconds:5.1f} s: return {returns.mean():.2f} after {version} updates; {steps} steps, '
      f'{steps / seconds:.0f} steps/s, {shared.unrolls.qsize()} unrolls in the queue; {shown}',
      flush=True,
    )
    return returns

  with concurrent.futures.ThreadPoolExecutor(1 + options.num_actors) as pool:
    try:
      common = shared, options, network
      threads = [pool.submit(run_learner, *common, state, learner_devices, actor_devices)]
      for i in range(options.num_actors):
        device = actor_devices[i % len(actor_devices)]
        threads.append(pool.submit(run_actor, *common, device, *seeds[2 + 2 * i : 4 + 2 * i]))
      for thread in threads:  # The learner's end stops the actors, and so does an error the others.
        thread.add_done_callback(lambda _: shared.stop.set())
      while not shared.stop.wait(options.eval_seconds):
        report()
    finally:
      shared.stop.set()  # After Ctrl-C and errors as well; leaving the block waits for the threads.
  for thread in threads:
    thread.result()  # Raises what the thread raised.
  return report()


def parse(arguments: list[str]) -> Options:
  """Returns the options: flags first, then what suits the environment, then the defaults."""
  parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
  for field in dataclasses.fields(Options):
    choices = list(ENVIRONMENTS) if field.name == 'env' else None
    text = f'default: {field.default}'
    parser.add_argument(f'--{field.name}', type=type(field.default), choices=choices, help=text)
  flags = vars(parser.parse_args(arguments))
  _, suitable = ENVIRONMENTS[flags.get('env', Options.env)]
  return Options(**{**suitable, **flags})


if __name__ == '__main__':
  try:
    train(parse(sys.argv[1:]))
  except KeyboardInterrupt:
    print('stopped by Ctrl-C')
    sys.exit(130)
