"""The learner: batches from replay in, parameters out, over a mesh of learner devices."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import acme
import jax
import jax.numpy as jnp
import numpy as np
from acme.utils import counting
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.agent import Agent, UpdateOutput
from agents.types import Nest, Unroll
from nodes import finite


class DevicePrefetcher:
  """Keeps the next batch on the devices while the current one is learned from."""

  def __init__(self, batches: Iterable[Any], put: Callable[[Any], Any], depth: int = 1):
    """Starts to fetch.

    Args:
      batches: yields host batches; read from a thread of this object.
      put: sends a host batch to the devices.
      depth: batches that may wait.
    """
    self._ready: queue.Queue[Any] = queue.Queue(depth)
    self._thread = threading.Thread(
      target=self._run, args=(batches, put), name='prefetch', daemon=True
    )
    self._thread.start()

  def next(self, check: Callable[[], None], poll: float = 0.2) -> Any:
    """Returns the next batch, calling `check` every `poll` seconds while there is none."""
    while True:
      try:
        item = self._ready.get(timeout=poll)
      except queue.Empty:
        check()
        continue
      if isinstance(item, BaseException):
        raise item
      return item

  def _run(self, batches: Iterable[Any], put: Callable[[Any], Any]) -> None:
    try:
      for batch in batches:
        self._ready.put(put(batch))
    except BaseException as error:
      self._ready.put(error)


class Learner(acme.Learner):
  """Updates an agent from unrolls, one all-reduced step at a time.

  The batch is sharded over the learner devices, the state is replicated on them; XLA's partitioner
  turns the loss's mean over the batch into one all-reduce of the gradient.
  """

  def __init__(
    self,
    agent: Agent,
    devices: Sequence[jax.Device],
    publish: Callable[[int, Nest], None],
    check: Callable[[], None],
    counter: counting.Counter,
    seed: int,
  ):
    """Initialises the learner's state and publishes the first parameters, version 0.

    Args:
      agent: the algorithm.
      devices: the learner devices.
      publish: takes (policy_version, params) after every step.
      check: called while there is nothing to learn from; may raise to end `step`.
      counter: gets `learner_steps`.
      seed: of the initial parameters.
    """
    mesh = Mesh(np.asarray(devices), ('data',))
    self._replicated = NamedSharding(mesh, PartitionSpec())
    self._sharded = NamedSharding(mesh, PartitionSpec('data'))
    self._publish = publish
    self._check = check
    self._counter = counter
    self._state = jax.jit(agent.init, out_shardings=self._replicated)(jax.random.key(seed))
    self._update: Callable[..., Any] = jax.jit(
      _with_check(agent.update),
      in_shardings=(self._replicated, self._sharded, self._sharded),
      out_shardings=self._replicated,
    )
    self._prefetcher: DevicePrefetcher | None = None
    self._metrics: dict[str, Any] = {}
    self._finite: Any = True
    self._waited = 0.0
    self._measured = (0, 0.0)
    self.learner_steps = 0
    publish(0, self._state.params)

  def learn_from(
    self,
    batches: Iterable[Any],
    update_priorities: Callable[[Any, Any], bool] = lambda keys, priorities: True,
    trained: Callable[[np.ndarray, int], None] = lambda unroll_ids, learner_step: None,
  ) -> None:
    """Begins to fetch batches; call it once, before `step`.

    Args:
      batches: yields `nodes.unroll_io.Batch`es, B divisible by the number of devices.
      update_priorities: takes a batch's keys and its new priorities, where the agent gives some;
        returns False to be asked again.
      trained: takes the ids of a batch's unrolls and the learner step that learned from them.
    """

    def put(batch: Any) -> tuple[Any, Any, Any]:
      on_devices = jax.device_put((batch.unrolls, batch.probabilities), self._sharded)
      return on_devices, batch.keys, batch.unroll_ids

    self._update_priorities = update_priorities
    self._trained = trained
    self._prefetcher = DevicePrefetcher(batches, put)

  def compile(self, unroll: Unroll, batch_size: int) -> None:
    """Compiles the update ahead of the first batch.

    Args:
      unroll: `jax.ShapeDtypeStruct`s without a batch axis.
      batch_size: B.
    """
    batch = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct((batch_size, *x.shape), x.dtype),
      (unroll, jax.ShapeDtypeStruct((), np.float32)),
    )
    self._update = self._update.lower(self._state, *batch).compile()  # type: ignore[attr-defined]

  def step(self) -> None:
    """Does one learner step and publishes its parameters.

    Raises:
      lifecycle.Hopeless: if a loss, gradient or other metric of the step before was not finite.
    """
    assert self._prefetcher is not None, 'learn_from comes first'
    started = time.monotonic()
    (unrolls, probabilities), keys, unroll_ids = self._prefetcher.next(self._check)
    self._waited += time.monotonic() - started
    # Waiting for the previous step here, and not for this one, keeps one step queued on the device.
    self._check_finite()
    (self._state, priorities, self._metrics), self._finite = self._update(
      self._state, unrolls, probabilities
    )
    while priorities is not None and not self._update_priorities(keys, priorities):
      self._check()
    self.learner_steps += 1
    self._trained(unroll_ids, self.learner_steps)
    self._counter.increment(learner_steps=1)
    self._publish(self.learner_steps, self._state.params)

  def get_variables(self, names: Sequence[str]) -> list[Nest]:
    """Returns the parameters as NumPy arrays, once for each name: there is one set, 'params'."""
    return [jax.device_get(self._state.params) for _ in names]

  def save(self) -> Any:
    """Returns the whole learner state as NumPy arrays.

    Raises:
      lifecycle.Hopeless: if the last step has spoilt it.
    """
    self._check_finite()
    return jax.device_get(self._state)

  def restore(self, state: Any) -> None:
    """Goes on from what `save` returned, and publishes its parameters."""
    self._state = jax.device_put(state, self._replicated)
    self.learner_steps = int(self._state.learner_steps)
    self._publish(self.learner_steps, self._state.params)

  def _check_finite(self) -> None:
    """Waits for the last step, and makes sure that what it computed is finite."""
    if not self._finite:
      finite.refuse(self.learner_steps, self._metrics)

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the last step's metrics, and rates over the last `seconds`."""
    steps, waited = self.learner_steps, self._waited
    previous_steps, previous_waited = self._measured
    self._measured = steps, waited
    return {k: float(v) for k, v in jax.device_get(self._metrics).items()} | {
      'learner_steps': float(steps),
      'learner_steps_per_second': (steps - previous_steps) / seconds,
      'learner_waiting_share': (waited - previous_waited) / seconds,
    }


def _with_check(update: Callable[..., UpdateOutput]) -> Callable[..., tuple[UpdateOutput, Any]]:
  """Returns a function that does an update and also says whether all its metrics are finite."""

  def checked(*args: Any) -> tuple[UpdateOutput, Any]:
    output = update(*args)
    metrics = jnp.stack([jnp.asarray(m, jnp.float32) for m in output.metrics.values()])
    return output, jnp.isfinite(metrics).all()

  return checked
