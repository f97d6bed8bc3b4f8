"""The learner: updates an agent from replay batches on a mesh of learner devices."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import Any

import acme
import jax
import jax.numpy as jnp
import numpy as np
from acme.utils import counting
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from agents.agent import Agent, UpdateOutput
from agents.metrics import all_finite
from agents.seeding import Seed
from agents.types import Nest, Unroll
from nodes.runtime import activity, lifecycle


class DevicePrefetcher:
  """Copies the next batch to the devices while the learner updates from the current one."""

  def __init__(self, batches: Iterable[Any], put: Callable[[Any], Any], depth: int = 1):
    """Starts the prefetch thread.

    Args:
      batches: yields host batches; read from the prefetch thread.
      put: copies a host batch to the devices.
      depth: maximum number of batches that wait on the devices.
    """
    self._ready: queue.Queue[Any] = queue.Queue(depth)
    self._thread = threading.Thread(
      target=self._run, args=(batches, put), name='prefetch', daemon=True
    )
    self._thread.start()

  def next(self, check: Callable[[], None], poll: float = 0.2) -> Any:
    """Returns the next batch; calls `check` every `poll` seconds while it waits."""
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

  The batch is sharded over the learner devices and the state is replicated on them. XLA's partitioner
  turns the loss's mean over the batch into one all-reduce of the gradient.

  The devices may span several processes, the replicas. Each replica has a learner and contributes its
  own rows of every batch. All replicas must do the same number of steps: a step waits for all of them.

  Attributes:
    learner_steps: updates started.
    waits_for_replicas: whether the learner waits for other replicas to finish a step.
  """

  def __init__(
    self,
    agent: Agent,
    devices: Sequence[jax.Device],
    publish: Callable[[int, Nest], None],
    check: Callable[[], None],
    counter: counting.Counter,
    seed: Seed,
  ):
    """Initialises the learner's state and publishes the first parameters, version 0.

    Args:
      agent: the algorithm.
      devices: the learner devices of all replicas, in the same order everywhere.
      publish: receives (policy_version, params) after every step.
      check: called while no batch is available; may raise to end `step`.
      counter: incremented by `learner_steps`; its `actor_steps` are those of this replica.
      seed: of the initial parameters.
    """
    self._mesh = Mesh(np.asarray(devices), ('data',))
    self._replicated = NamedSharding(self._mesh, PartitionSpec())
    self._sharded = NamedSharding(self._mesh, PartitionSpec('data'))
    self._publish = publish
    self._check = check
    self._counter = counter
    # `init` runs once, so compilation dominates its cost.
    quick = {'xla_backend_optimization_level': 0} if devices[0].platform == 'cpu' else None
    init = jax.jit(agent.init, out_shardings=self._replicated, compiler_options=quick)
    self._state = init(seed.child('parameters').key())
    self._update: Callable[..., Any] = jax.jit(
      _with_check(agent.update),
      in_shardings=(self._replicated, self._sharded, self._sharded, self._sharded),
      out_shardings=(
        (self._replicated, self._sharded, self._replicated),
        self._replicated,
        self._replicated,
      ),
    )
    self._actor_steps = 0
    self._brought = 0
    self._new_actor_steps: Any = 0
    self._prefetcher: DevicePrefetcher | None = None
    self._waiting = futures.ThreadPoolExecutor(1)
    self._metrics: dict[str, Any] = {}
    self._ended_metrics: dict[str, Any] = {}
    self._finite: Any = True
    self._waited = 0.0
    self._measured = (0, 0.0)
    self.learner_steps = 0
    self.waits_for_replicas = False
    self._publish_params()

  def learn_from(
    self,
    batches: Iterable[Any],
    update_priorities: Callable[[Any, Any], bool] = lambda keys, priorities: True,
    trained: Callable[[np.ndarray, int], None] = lambda unroll_ids, learner_step: None,
  ) -> None:
    """Starts to prefetch batches; call it once, before `step`.

    Args:
      batches: yields `nodes.unrolls.reader.Batch`es, B divisible by the number of devices.
      update_priorities: receives a batch's keys and new priorities, if the agent computes priorities;
        returns False to request a retry.
      trained: receives a batch's unroll ids and the learner step that trained on them.
    """

    def put(batch: Any) -> tuple[Any, Any, Any]:
      on_devices = self._global((batch.unrolls, batch.probabilities))
      return on_devices, batch.keys, batch.unroll_ids

    self._update_priorities = update_priorities
    self._trained = trained
    self._prefetcher = DevicePrefetcher(batches, put)

  def compile(self, unroll: Unroll, batch_size: int) -> None:
    """Compiles the update ahead of the first batch.

    Args:
      unroll: `jax.ShapeDtypeStruct`s without a batch axis.
      batch_size: B of each replica.
    """
    rows = jax.process_count() * batch_size
    batch = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype),
      (unroll, jax.ShapeDtypeStruct((), np.float32)),
    )
    actor_steps = jax.ShapeDtypeStruct((self._sharded.num_devices,), np.int32)
    self._update = self._update.lower(  # type: ignore[attr-defined]
      self._state, *batch, actor_steps
    ).compile()

  def actor_steps(self) -> int:
    """Returns the `actor_steps` of all replicas at the start of the last step.

    All replicas get the same number after the same step. Waits for that step to finish.
    """
    self._wait()
    return self._actor_steps + int(self._new_actor_steps)

  def step(self) -> None:
    """Does one learner step and publishes its parameters.

    Raises:
      lifecycle.NonRetryableError: if the previous step's loss, gradient or parameters are not finite.
    """
    assert self._prefetcher is not None, 'learn_from comes first'
    started = time.monotonic()
    activity.mark(activity.WAITING_FOR_REPLAY)
    (unrolls, probabilities), keys, unroll_ids = self._prefetcher.next(self._check)
    self._waited += time.monotonic() - started
    activity.mark(activity.UPDATING)
    # Waiting for the previous step rather than this one keeps one step queued on the device.
    self._actor_steps = self.actor_steps()
    self._check_finite()
    self._ended_metrics = self._metrics
    (self._state, priorities, self._metrics), self._finite, self._new_actor_steps = self._update(
      self._state, unrolls, probabilities, self._bring_actor_steps()
    )
    if priorities is not None:
      priorities = self._local(priorities, self._sharded)
    self.learner_steps += 1
    self._trained(unroll_ids, self.learner_steps)
    self._counter.increment(learner_steps=1)
    self._publish_params()
    # Last, since `check` may raise here; state and counters are already consistent.
    while priorities is not None and not self._update_priorities(keys, priorities):
      activity.mark(activity.WAITING_FOR_REPLAY)
      self._check()

  def get_variables(self, names: Sequence[str]) -> list[Nest]:
    """Returns the parameters as NumPy arrays, once per name; the only variable is 'params'."""
    return [jax.device_get(self._state.params) for _ in names]

  def save(self) -> Any:
    """Returns the whole learner state as NumPy arrays.

    Raises:
      lifecycle.NonRetryableError: if the last step made it non-finite.
    """
    self._check_finite()
    return jax.device_get(self._state)

  def restore(self, state: Any) -> None:
    """Restores a state from `save` and publishes its parameters."""
    self._state = jax.device_put(state, self._replicated)
    self.learner_steps = int(self._state.learner_steps)
    self._measured = self.learner_steps, self._waited
    self._publish_params()

  def _check_finite(self) -> None:
    """Waits for the last step and raises if its results are not finite."""
    self._wait()
    if not self._finite:
      raise_not_finite(self.learner_steps, self._metrics)

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the metrics of the last finished step and rates over the last `seconds`."""
    steps, waited = self.learner_steps, self._waited
    previous_steps, previous_waited = self._measured
    self._measured = steps, waited
    return {k: float(v) for k, v in jax.device_get(self._ended_metrics).items()} | {
      'learner_steps': float(steps),
      'learner_steps_per_second': (steps - previous_steps) / seconds,
      'learner_waiting_share': (waited - previous_waited) / seconds,
    }

  def _wait(self) -> None:
    """Waits for the last step, possibly long if another replica has not joined it yet."""
    if jax.process_count() == 1 or self._finite is True:
      jax.block_until_ready(self._finite)
    elif not self._finite.is_ready():
      ended = self._waiting.submit(jax.block_until_ready, self._finite)
      while not futures.wait([ended], timeout=0.2).done:
        self.waits_for_replicas = True
        activity.mark(activity.WAITING_FOR_REPLICAS)
        self._check()
      self.waits_for_replicas = False
      activity.mark(activity.UPDATING)
      ended.result()

  def _global(self, rows: Nest) -> Nest:
    """Returns global arrays over all replicas; `rows` are this replica's part."""
    if jax.process_count() == 1:
      return jax.device_put(rows, self._sharded)  # All leaves at once.
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self._sharded, x), rows)

  def _local(self, arrays: Nest, sharding: NamedSharding) -> Nest:
    """Returns this replica's part of global arrays, without a copy."""
    if jax.process_count() == 1:
      return arrays
    return multihost_utils.global_array_to_host_local_array(arrays, self._mesh, sharding.spec)

  def _publish_params(self) -> None:
    self._publish(self.learner_steps, self._local(self._state.params, self._replicated))

  def _bring_actor_steps(self) -> jax.Array:
    """Returns this replica's new actor steps, to be summed over the replicas."""
    steps = int(self._counter.get_counts().get('actor_steps', 0))
    new = np.zeros(len(self._sharded.addressable_devices), np.int32)
    # After a restart the difference may exceed an int32.
    new[0] = min(steps - self._brought, 1 << 30)
    self._brought += int(new[0])
    return self._global(new)


def _with_check(update: Callable[..., UpdateOutput]) -> Callable[..., tuple[Any, Any, Any]]:
  """Returns `update` with a finiteness check and a sum of actor steps over all replicas.

  The returned function takes one more argument, the new actor steps, int32 `[devices]`. It returns the
  update's output, whether that is finite (`agents.metrics.all_finite`), and the sum of actor steps.
  """

  def checked(*args: Any) -> tuple[Any, Any, Any]:
    *inputs, actor_steps = args
    output = update(*inputs)
    return tuple(output), all_finite(output.state.params, output.metrics), jnp.sum(actor_steps)

  return checked


def raise_not_finite(learner_step: int, metrics: Mapping[str, Any]) -> None:
  """Raises lifecycle.NonRetryableError, one sentence that names a step's non-finite metrics."""
  bad = {k: float(v) for k, v in jax.device_get(metrics).items() if not np.isfinite(v)}
  values = (
    ', '.join(f'{name} is {value}' for name, value in bad.items()) or 'its parameters are not'
  )
  raise lifecycle.NonRetryableError(
    f'learner step {learner_step} is not finite: {values}; the last checkpoint, if any, is of an '
    'earlier step. A smaller learning rate or a clipped gradient may help.'
  )
