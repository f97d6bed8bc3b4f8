"""The learner: updates an agent from replay batches on a mesh of learner devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import acme
import jax
import jax.numpy as jnp
import numpy as np
from acme.utils import counting

from agents.agent import Agent, UpdateOutput
from agents.metrics import all_finite
from agents.seeding import Seed
from agents.types import Nest, Unroll
from nodes.learning.finite import raise_not_finite
from nodes.learning.prefetcher import DevicePrefetcher
from nodes.learning.replica_sync import ReplicaSync
from nodes.runtime import activity
from nodes.runtime.rate import Rate
from nodes.runtime.time_share import TimeShare


class Learner(acme.Learner):
  """Updates an agent from unrolls, one all-reduced step at a time.

  The batch is sharded over the learner devices and the state is replicated on them. XLA's partitioner
  turns the loss's mean over the batch into one all-reduce of the gradient.

  The devices may span several processes, the replicas. Each replica has a learner and contributes its
  own rows of every batch. All replicas must do the same number of steps: a step waits for all of them.

  Attributes:
    learner_steps: updates started.
    sync: this replica's part of the batches, of the results, and of the actor steps.
  """

  def __init__(
    self,
    agent: Agent,
    devices: Sequence[jax.Device],
    publish: Callable[[int, Nest], None],
    check: Callable[[], None],
    counter: counting.Counter,
    seed: Seed,
    mix: Callable[[Nest], Nest] | None = None,
    counted: Mapping[str, int] = MappingProxyType({}),
    follow: Callable[[Any, bool], Any | None] | None = None,
  ):
    """Initialises the learner's state and publishes the first parameters, version 0.

    Args:
      agent: the algorithm.
      devices: the learner devices of all replicas, in the same order everywhere.
      publish: receives (policy_version, params) after every step.
      check: called while no batch is available; may raise to end `step`.
      counter: incremented by `learner_steps`; its `actor_steps` are those of this replica.
      seed: of the initial parameters.
      mix: returns what takes the place of the parameters after every step; None to keep them.
      counted: what an update adds to the counter beside a learner step; nothing where actors count.
      follow: takes the state after every step, on the devices, and whether the update was finite. It
        returns the state to continue with, as NumPy arrays, or None for the one that it took. An update
        that is not finite counts, but the state that `follow` takes then has the parameters before it.
    """
    self.sync = ReplicaSync(devices)
    replicated, sharded = self.sync.replicated, self.sync.sharded
    self._publish = publish
    self._check = check
    self._mix, self._follow = mix, follow
    self._counter, self._counted = counter, dict(counted)
    # `init` runs once, so compilation dominates its cost.
    quick = {'xla_backend_optimization_level': 0} if devices[0].platform == 'cpu' else None
    init = jax.jit(agent.init, out_shardings=replicated, compiler_options=quick)
    self._state = init(seed.child('parameters').key())
    self._update: Callable[..., Any] = jax.jit(
      _with_check(agent.update),
      in_shardings=(replicated, sharded, sharded, sharded),
      out_shardings=((replicated, sharded, replicated), replicated, replicated),
    )
    self._actor_steps = 0
    self._new_actor_steps: Any = 0
    self._prefetcher: DevicePrefetcher | None = None
    self._metrics: dict[str, Any] = {}
    self._ended_metrics: dict[str, Any] = {}
    self._finite: Any = True
    self._waiting = TimeShare()
    self._rate = Rate()
    self.learner_steps = 0
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
      on_devices = self.sync.to_global((batch.unrolls, batch.probabilities))
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
    rows = self.sync.num_rows(batch_size)
    batch = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct((rows, *x.shape), x.dtype),
      (unroll, jax.ShapeDtypeStruct((), np.float32)),
    )
    self._update = self._update.lower(  # type: ignore[attr-defined]
      self._state, *batch, self.sync.contribution_spec()
    ).compile()

  def actor_steps(self) -> int:
    """Returns the `actor_steps` of all replicas at the start of the last step.

    All replicas get the same number after the same step. Waits for that step to finish.
    """
    self.sync.wait(self._finite, self._check)
    return self._actor_steps + int(self._new_actor_steps)

  def step(self) -> None:
    """Does one learner step and publishes its parameters.

    Raises:
      lifecycle.NonRetryableError: if the previous step's loss, gradient or parameters are not finite,
        and the learner has no `follow`.
    """
    assert self._prefetcher is not None, 'learn_from comes first'
    activity.mark(activity.WAITING_FOR_REPLAY)
    with self._waiting.counted():
      (unrolls, probabilities), keys, unroll_ids = self._prefetcher.next(self._check)
    activity.mark(activity.UPDATING)
    # Waiting for the previous step rather than this one keeps one step queued on the device.
    self._actor_steps = self.actor_steps()
    self._check_finite()
    self._ended_metrics = self._metrics
    self._counter.increment(**self._counted)
    steps = int(self._counter.get_counts().get('actor_steps', 0))
    before = self._state
    (self._state, priorities, self._metrics), self._finite, self._new_actor_steps = self._update(
      self._state, unrolls, probabilities, self.sync.contribute(steps)
    )
    if priorities is not None:
      priorities = self.sync.to_local(priorities, self.sync.sharded)
    self.learner_steps += 1
    self._trained(unroll_ids, self.learner_steps)
    self._counter.increment(learner_steps=1)
    if self._mix is not None:
      self._check_finite()
      self._state = self._state._replace(params=self._mix(self._state.params))
    if self._follow is not None and not self._continue(before):
      priorities = None
    self._publish_params()
    # Last, since `check` may raise here; state and counters are already consistent.
    while priorities is not None and not self._update_priorities(keys, priorities):
      activity.mark(activity.WAITING_FOR_REPLAY)
      self._check()

  def _continue(self, before: Any) -> bool:
    """Continues as `follow` says; returns whether the update was finite, and drops it otherwise."""
    assert self._follow is not None
    self.sync.wait(self._finite, self._check)
    finite = bool(self._finite)
    if not finite:
      self._state = before._replace(learner_steps=self._state.learner_steps)
      self._metrics, self._finite = self._ended_metrics, True
    found = self._follow(self._state, finite)
    if found is not None:
      self._state = jax.device_put(found, self.sync.replicated)
    return finite

  def get_variables(self, names: Sequence[str]) -> list[Nest]:
    """Returns the parameters as NumPy arrays, once per name; the only variable is 'params'.

    Raises:
      lifecycle.NonRetryableError: if the last step made them non-finite.
    """
    self._check_finite()
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
    self._state = jax.device_put(state, self.sync.replicated)
    self.learner_steps = int(self._state.learner_steps)
    self._rate.start(self.learner_steps)
    self._publish_params()

  def _check_finite(self) -> None:
    """Waits for the last step and raises if its results are not finite."""
    self.sync.wait(self._finite, self._check)
    if not self._finite:
      raise_not_finite(self.learner_steps, self._metrics)

  def measure(self, seconds: float) -> dict[str, float]:
    """Returns the metrics of the last finished step and rates over the last `seconds`."""
    steps = self.learner_steps
    return {k: float(v) for k, v in jax.device_get(self._ended_metrics).items()} | {
      'learner_steps': float(steps),
      'learner_steps_per_second': self._rate.measure(steps, seconds),
      'learner_waiting_share': self._waiting.measure(seconds),
    }

  def _publish_params(self) -> None:
    params = self.sync.to_local(self._state.params, self.sync.replicated)
    self._publish(self.learner_steps, params)


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
