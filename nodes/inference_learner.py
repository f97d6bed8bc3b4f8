"""Sebulba's host unit: inference and learner in one process, parameters handed over on device."""

from __future__ import annotations

import contextlib
import importlib
import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from absl import logging
from acme import specs
from acme.utils import counting
from flax import serialization

from agents.agent import Agent
from agents.types import Array, Unroll
from environments.base import BatchedEnvironment
from nodes import audit, checkpoints, final_params, lifecycle, replicas, rpc
from nodes.inference import InferenceServer
from nodes.layout import StreamSpec
from nodes.learner import Learner
from nodes.long_wait import LongWait
from nodes.reporter import Reporter
from nodes.streams import unroll_spec
from nodes.watching import Watchers


class InferenceLearner:
  """Serves actors on the actor devices and learns on the learner devices, until `num_steps`.

  The work starts in `run`, so that the RPC server is up, and actors connect, while JAX compiles.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    streams: Sequence[StreamSpec],
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    watchers: Sequence[Any] = (),
    actor_devices: Sequence[int],
    learner_devices: Sequence[int],
    inference_batch_size: int,
    inference_timeout_ms: float,
    batch_size: int,
    num_steps: int,
    run_dir: str,
    checkpoint_period: float,
    checkpoints_kept: int,
    record: bool,
    seed: int,
    replica: int = 0,
    num_replicas: int = 1,
    coordinator: str | None = None,
  ):
    """Initialises the node.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      streams: who will ask for actions.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      watchers: clients of nodes that see unrolls go by. See `nodes.watching`.
      actor_devices: indices into `jax.local_devices()`.
      learner_devices: likewise; may overlap with the actor devices.
      inference_batch_size: environments in an inference batch at most.
      inference_timeout_ms: how long a request may wait for a fuller batch.
      batch_size: unrolls in a learner batch, of each replica.
      num_steps: actor_steps, of all replicas, after which training ends.
      run_dir: where checkpoints and the final parameters go. If there is a checkpoint, the work goes
        on from the newest.
      checkpoint_period: seconds between checkpoints; 0 for none.
      checkpoints_kept: how many of them to keep.
      record: whether to record every unroll. See `nodes.audit`.
      seed: of parameters and action sampling.
      replica: which of the replicas this is; the first writes the parameters.
      num_replicas: whose learners do every update together.
      coordinator: host:port at which they meet, on the machine of the first.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._streams = streams
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._watchers = watchers
    self._actor_devices = actor_devices
    self._learner_devices = learner_devices
    self._inference_batch_size = inference_batch_size
    self._inference_timeout = inference_timeout_ms / 1e3
    self._batch_size = batch_size
    self._num_steps = num_steps
    self._run_dir = run_dir
    self._checkpoint_period = checkpoint_period
    self._checkpoints_kept = checkpoints_kept
    self._audit_dir = run_dir if record else ''
    self._seed = seed
    self._name = f'inference_learner/{replica}'
    self._replica = replica
    self._num_replicas = num_replicas
    self._coordinator = coordinator
    self._server: InferenceServer | None = None
    self._serving = threading.Event()
    self._failed = False

  def step(self, *request: Any) -> np.ndarray | None:
    """See `InferenceServer.step`. An RPC."""
    self._serving.wait()
    actions = self._server.step(*request) if self._server is not None else None
    if actions is None and self._failed:
      raise rpc.away()  # None would tell an actor that there is nothing more to do.
    return actions

  def run(self) -> None:
    """Trains to the end, then serves evaluators until the program stops."""
    stop = lifecycle.stop_event()
    try:
      self._run(stop)
    except BaseException:
      self._failed = not stop.is_set()
      raise
    finally:
      self._serving.set()  # An actor that still waits for the start is told to stop.
      if self._server is not None:
        self._server.close()

  def _run(self, stop: threading.Event) -> None:
    # Importing Reverb, and TensorFlow with it, takes about as long as all compilation.
    importing = futures.ThreadPoolExecutor(1).submit(importlib.import_module, 'nodes.unroll_io')
    if self._coordinator is not None:
      replicas.join(self._coordinator, self._replica, self._num_replicas)
    actor_devices = replicas.local_devices(self._actor_devices, '--actor_devices')
    learner_devices = replicas.devices_of_all(self._learner_devices, '--learner_devices')
    if self._num_replicas > 1:
      replicas.meet(learner_devices)
    environment = self._make_environment(1, self._seed)
    spec, action_repeat = environment.spec(), environment.action_repeat
    environment.close()
    agent = self._make_agent(spec.observations, spec.actions)
    unroll = unroll_spec(agent, spec)
    counter = counting.Counter()
    counter.increment(actor_steps=0, environment_frames=0, learner_steps=0)
    checkpoint_dir = checkpoints.directory(self._run_dir)
    # The first replica reads it, the others have it from there.
    checkpoint = checkpoints.newest(checkpoint_dir) if self._replica == 0 else None
    if checkpoint is not None:
      counter.increment(**checkpoint.counts)
      logging.info('going on from %s: %s', checkpoint.path, checkpoint.counts)
    counts = counter.get_counts()
    goes_on, learned = int(checkpoint is not None), counts['learner_steps']
    trained_already = int(counts['actor_steps'] >= self._num_steps)
    if self._num_replicas > 1:
      news = np.array([goes_on, learned, trained_already])
      goes_on, learned, trained_already = map(int, replicas.share(news, self._replica))
      if self._replica:
        counter.increment(learner_steps=learned)

    server = InferenceServer(
      agent,
      self._streams,
      actor_devices,
      spec,
      lambda unrolls, release: writer.put(unrolls, release),
      counter,
      action_repeat,
      self._inference_batch_size,
      self._inference_timeout,
      # Actions after a restart are not those before it again, nor those of another replica.
      self._seed + learned + 1_000_003 * self._replica,
      num_environments=self._num_replicas * sum(s.num_envs for s in self._streams if s.training),
    )

    def check() -> None:
      writer.check()
      if stop.is_set():
        raise lifecycle.Stopped
      if learner.learner_steps > learned + 1:  # The first report names the columns.
        reporter.maybe_report()
      else:
        reporter.beat()
      waiting.check(learner.learner_steps)

    def save() -> tuple[dict[str, int], Any]:
      counts = counter.get_counts()
      if self._num_replicas > 1:
        steps = max(counts['actor_steps'], learner.actor_steps())
        counts |= {'actor_steps': steps, 'environment_frames': steps * action_repeat}
      return counts, learner.save()

    learner = Learner(
      agent,
      learner_devices,
      server.set_params,
      check,
      counter,
      self._seed,
    )
    if goes_on:
      state = learner.save()
      if checkpoint is not None:
        state = checkpoints.restore(checkpoint, state)
      learner.restore(replicas.share(state, self._replica))
    server.compile()
    learner.compile(unroll, self._batch_size)
    priorities = self._compiled_priorities(agent, unroll)

    unroll_io = importing.result()
    columns = unroll_io.Columns(unroll)
    produced = audit.Audit(self._audit_dir, audit.PRODUCED)
    watchers = Watchers(self._watchers)
    writer = unroll_io.UnrollWriter(
      self._replay_addresses, columns, priorities, produced.record, watchers.show
    )
    reader = unroll_io.UnrollReader(
      self._replay_addresses, columns, self._batch_size, max_in_flight=self._batch_size
    )
    reporter = Reporter(
      self._monitor,
      self._name,
      lambda seconds: (
        server.measure(seconds)
        | learner.measure(seconds)
        | reader.measure()
        | {'checkpoint_failures': float(checkpointer.failures)}
      ),
    )
    checkpointer = checkpoints.Checkpointer(
      checkpoint_dir,
      self._checkpoint_period if self._replica == 0 else 0.0,
      self._checkpoints_kept,
      save,
    )
    waiting = LongWait(
      lambda: (
        'an update waits for another replica.'
        if learner.waits_for_replicas
        else reader.explain_wait()
      )
    )
    trained = audit.Audit(self._audit_dir, audit.TRAINED)
    learner.learn_from(reader, reader.update_priorities, trained.record)
    server.start()
    self._server = server
    self._serving.set()
    try:
      while not trained_already and learner.actor_steps() < self._num_steps:
        learner.step()
        check()
        checkpointer.maybe_write()
      # On disk before the actors are told: a life that goes on from here is not to need them again.
      checkpointer.write_now()
      params = learner.get_variables(['params'])[0]
      if self._replica == 0:
        final_params.save(self._run_dir, params)
      server.finish_training()
      crc = zlib.crc32(serialization.to_bytes(params))
      reporter.announce_finish(counter.get_counts() | {'params_crc32': crc}, stop)
    except lifecycle.Stopped:
      if not server.training_finished:
        # Of an update that another replica will not join any more, nothing can be kept.
        with contextlib.suppress(lifecycle.Stopped):
          checkpointer.write_now()
      logging.info('stopped: %s', counter.get_counts())
    finally:
      writer.close()
      reporter.close()
      watchers.close()

  def _compiled_priorities(self, agent: Agent, unroll: Unroll) -> Callable[[Unroll], Array | None]:
    """Returns the agent's initial priorities, compiled for the streams of the program."""
    priorities = jax.jit(agent.initial_priorities)
    for size in {stream.num_envs for stream in self._streams if stream.training}:
      priorities(jax.tree.map(lambda x, n=size: np.zeros((n, *x.shape), x.dtype), unroll))
    return priorities
