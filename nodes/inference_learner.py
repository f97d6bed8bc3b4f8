"""Sebulba's host unit: inference and learner in one process, parameters handed over on device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment
from nodes.inference.action_service import ActionService
from nodes.inference.layout import StreamSpec
from nodes.inference.socket_server import Inbox
from nodes.learning import replicas
from nodes.learning.loop import Training
from nodes.runtime import lifecycle


class InferenceLearner:
  """Serves actors on the actor devices and learns on the learner devices, until `num_steps`.

  It listens from the beginning, so that actors connect while JAX compiles. Who asks gets no answer
  before there is one, or when the node fails: its next life is to be asked.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    streams: Sequence[StreamSpec],
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    port: int,
    watchers: Sequence[Any] = (),
    actor_devices: Sequence[int],
    inference_batch_size: int,
    inference_timeout_ms: float,
    seed: Seed,
    replica: int = 0,
    num_replicas: int = 1,
    **training: Any,
  ):
    """Initialises the node.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      streams: who will ask for actions.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      port: to listen on.
      watchers: clients of nodes that see unrolls go by. See `nodes.unrolls.observers`.
      actor_devices: indices into `jax.local_devices()`; may overlap with the learner devices.
      inference_batch_size: environments in an inference batch at most.
      inference_timeout_ms: how long a request may wait for a fuller batch.
      seed: of parameters and action sampling; the same in all replicas, whose parameters are one.
      replica: which of the replicas this is.
      num_replicas: whose learners do every update together.
      **training: further arguments of `nodes.learning.loop.Training`.

    Raises:
      OSError: if the port is in use.
    """
    self._inbox = Inbox(port)
    self._training = Training(
      f'inference_learner/{replica}',
      make_agent,
      make_environment,
      replay_addresses,
      monitor,
      seed=seed,
      replica=replica,
      num_replicas=num_replicas,
      **training,
    )
    self._streams = streams
    self._replay_addresses = replay_addresses
    self._watchers = watchers
    self._actor_devices = actor_devices
    self._inference_batch_size = inference_batch_size
    self._inference_timeout = inference_timeout_ms / 1e3
    self._seed = seed
    self._replica = replica
    self._num_replicas = num_replicas

  def run(self) -> None:
    """Trains to the end, then serves evaluators until the program stops."""
    stop = lifecycle.stop_event()
    with contextlib.closing(self._inbox):
      self._training.prepare()
      with contextlib.closing(self._make_service()) as service:
        self._training.run(service, stop)

  def _make_service(self) -> ActionService:
    training = self._training
    return ActionService(
      training.agent,
      training.environment_spec,
      self._streams,
      replicas.local_devices(self._actor_devices, '--actor_devices'),
      self._replay_addresses,
      training.counter,
      action_repeat=training.action_repeat,
      batch_size=self._inference_batch_size,
      timeout=self._inference_timeout,
      # Actions after a restart are not those before it again, nor those of another replica.
      seed=self._seed.child('replica', self._replica, 'life', lifecycle.life()),
      num_environments=self._num_replicas * sum(s.num_envs for s in self._streams if s.training),
      audit_dir=training.audit_dir,
      watchers=self._watchers,
      inbox=self._inbox,
    )
