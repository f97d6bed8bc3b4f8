"""Sebulba's host unit: inference and learner in one process, parameters handed over on device."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from absl import logging
from acme import specs
from acme.utils import counting

from agents.agent import Agent
from agents.types import Array, Unroll
from environments.base import BatchedEnvironment
from nodes import audit, checkpoints, final_params, lifecycle
from nodes.inference import InferenceServer
from nodes.layout import StreamSpec
from nodes.learner import Learner
from nodes.long_wait import LongWait
from nodes.reporter import Reporter
from nodes.streams import unroll_spec


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
  ):
    """Initialises the node.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      streams: who will ask for actions.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      actor_devices: indices into `jax.local_devices()`.
      learner_devices: likewise; may overlap with the actor devices.
      inference_batch_size: environments in an inference batch at most.
      inference_timeout_ms: how long a request may wait for a fuller batch.
      batch_size: unrolls in a learner batch.
      num_steps: actor_steps after which training ends.
      run_dir: where checkpoints and the final parameters go. If there is a checkpoint, the work goes
        on from the newest.
      checkpoint_period: seconds between checkpoints; 0 for none.
      checkpoints_kept: how many of them to keep.
      record: whether to record every unroll. See `nodes.audit`.
      seed: of parameters and action sampling.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._streams = streams
    self._replay_addresses = replay_addresses
    self._monitor = monitor
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
    self._server: InferenceServer | None = None
    self._serving = threading.Event()

  def step(self, *request: Any) -> np.ndarray | None:
    """See `InferenceServer.step`. An RPC."""
    self._serving.wait()
    return self._server.step(*request) if self._server is not None else None

  def run(self) -> None:
    """Trains to the end, then serves evaluators until the program stops."""
    try:
      self._run(lifecycle.stop_event())
    finally:
      self._serving.set()  # An actor that still waits for the start is told to stop.
      if self._server is not None:
        self._server.close()

  def _run(self, stop: threading.Event) -> None:
    # Importing Reverb, and TensorFlow with it, takes about as long as all compilation.
    importing = futures.ThreadPoolExecutor(1).submit(importlib.import_module, 'nodes.unroll_io')
    environment = self._make_environment(1, self._seed)
    spec, action_repeat = environment.spec(), environment.action_repeat
    environment.close()
    agent = self._make_agent(spec.observations, spec.actions)
    unroll = unroll_spec(agent, spec)
    counter = counting.Counter()
    checkpoint_dir = checkpoints.directory(self._run_dir)
    checkpoint = checkpoints.newest(checkpoint_dir)
    if checkpoint is not None:
      counter.increment(**checkpoint.counts)
      logging.info('going on from %s: %s', checkpoint.path, checkpoint.counts)
    learned = counter.get_counts().get('learner_steps', 0)

    server = InferenceServer(
      agent,
      self._streams,
      _devices(self._actor_devices, '--actor_devices'),
      spec,
      lambda unrolls, release: writer.put(unrolls, release),
      counter,
      action_repeat,
      self._inference_batch_size,
      self._inference_timeout,
      self._seed + learned,  # Actions after a restart are not those before it again.
    )

    def check() -> None:
      writer.check()
      if stop.is_set():
        raise lifecycle.Stopped
      if learner.learner_steps > learned:  # The first report names the columns.
        reporter.maybe_report()
      else:
        reporter.beat()
      waiting.check(learner.learner_steps)

    learner = Learner(
      agent,
      _devices(self._learner_devices, '--learner_devices'),
      server.set_params,
      check,
      counter,
      self._seed,
    )
    if checkpoint is not None:
      learner.restore(checkpoints.restore(checkpoint, learner.save()))
    server.compile()
    learner.compile(unroll, self._batch_size)
    priorities = self._compiled_priorities(agent, unroll)

    unroll_io = importing.result()
    columns = unroll_io.Columns(unroll)
    produced = audit.Audit(self._audit_dir, audit.PRODUCED)
    writer = unroll_io.UnrollWriter(self._replay_addresses, columns, priorities, produced.record)
    reader = unroll_io.UnrollReader(
      self._replay_addresses, columns, self._batch_size, max_in_flight=self._batch_size
    )
    reporter = Reporter(
      self._monitor,
      'inference_learner/0',
      lambda seconds: server.measure(seconds) | learner.measure(seconds) | reader.measure(),
    )
    checkpointer = checkpoints.Checkpointer(
      checkpoint_dir,
      self._checkpoint_period,
      self._checkpoints_kept,
      lambda: (counter.get_counts(), learner.save()),
    )
    waiting = LongWait(reader.explain_wait)
    trained = audit.Audit(self._audit_dir, audit.TRAINED)
    learner.learn_from(reader, reader.update_priorities, trained.record)
    server.start()
    self._server = server
    self._serving.set()
    try:
      while server.actor_steps < self._num_steps:
        learner.step()
        check()
        checkpointer.maybe_write()
      server.finish_training()
      checkpointer.write_now()
      final_params.save(self._run_dir, learner.get_variables(['params'])[0])
      reporter.announce_finish(counter.get_counts(), stop)
    except lifecycle.Stopped:
      if not server.training_finished:
        checkpointer.write_now()
      logging.info('stopped: %s', counter.get_counts())
    finally:
      writer.close()

  def _compiled_priorities(self, agent: Agent, unroll: Unroll) -> Callable[[Unroll], Array | None]:
    """Returns the agent's initial priorities, compiled for the streams of the program."""
    priorities = jax.jit(agent.initial_priorities)
    for size in {stream.num_envs for stream in self._streams if stream.training}:
      priorities(jax.tree.map(lambda x, n=size: np.zeros((n, *x.shape), x.dtype), unroll))
    return priorities


def _devices(indices: Sequence[int], flag: str) -> list[jax.Device]:
  local = jax.local_devices()
  if max(indices) >= len(local):
    raise lifecycle.Hopeless(
      f'{flag}={",".join(map(str, indices))} asks for device {max(indices)}, but this process sees '
      f'{len(local)} device(s), numbered from 0.'
    )
  return [local[i] for i in indices]
