"""Sebulba's host unit: inference and learner in one process, with on-device parameter transfer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment
from nodes.gossip.mixer import Mixer
from nodes.gossip.options import Peer
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.inference.server import InferenceServer, make_server
from nodes.inference.socket_server import SocketServer
from nodes.learning import loop, replicas
from nodes.learning.options import TrainingOptions
from nodes.learning.parameter_server import ParameterServer
from nodes.learning.parameter_service import ActingAndServing, ParameterService
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters
from nodes.unrolls.options import UnrollSinks


class InferenceLearner(ParameterService):
  """Serves actors on the actor devices and learns on the learner devices, until `num_steps`.

  It listens from construction, so that actors connect while JAX compiles. Requests wait
  until the node is ready. A failing node sends no reply: the actor retries with the next incarnation.
  With `serves_params`, other nodes fetch its parameters by Courier. With `peer`, each learner step is a
  local update, after which the node mixes its parameters with those of its neighbours and publishes the
  result. A peer that restarts continues from its newest checkpoint.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    env_groups: Sequence[EnvGroupSpec],
    replay_addresses: Sequence[str],
    monitor: Any,
    *,
    port: int,
    options: InferenceOptions,
    seed: Seed,
    num_environments: int,
    sinks: UnrollSinks,
    training: TrainingOptions,
    observers: Sequence[Any] = (),
    coordinator: str | None = None,
    serves_params: bool = False,
    peer: Peer | None = None,
  ):
    """Initialises the node.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      env_groups: the environment groups to serve.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      port: to listen on.
      options: of inference; actor devices may overlap with learner devices.
      seed: of action sampling; the node adds its replica.
      num_environments: training environments of the whole program.
      sinks: where the unrolls are written.
      training: options of learning.
      observers: clients of nodes that observe the unrolls. See `nodes.unrolls.observers`.
      coordinator: host:port of the JAX coordinator; None for one replica.
      serves_params: whether to publish the parameters for the calls of `ParameterService` too.
      peer: its place among peers, each with actors and replay of its own; None for a learner that mixes
        nothing.

    Raises:
      OSError: if the port is in use.
    """
    super().__init__()
    self._inbox = SocketServer(port, shared_memory=options.shared_memory)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._env_groups = env_groups
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._options, self._seed, self._num_environments = options, seed, num_environments
    self._sinks = sinks
    self._training = training
    self._observers = observers
    self._coordinator = coordinator
    self._serves_params = serves_params
    self._mixer = Mixer(peer) if peer else None
    if self._mixer:
      self.offer, self.leave = self._mixer.offer, self._mixer.leave  # RPCs of its predecessors.

  def run(self) -> None:
    """Trains until `num_steps`, then serves evaluators until the program stops."""
    stop = lifecycle.stop_event()
    mixing = contextlib.closing(self._mixer) if self._mixer else contextlib.nullcontext()
    with mixing, contextlib.closing(self._inbox), self._gate.release_on_exit(stop):
      prepared = loop.prepare(
        self._make_agent, self._make_environment, self._training, self._coordinator
      )
      with contextlib.closing(self._make_server(prepared)) as acting:
        service: loop.ParameterConsumer = acting
        if self._serves_params:
          unused = ActingCounters(prepared.counter, prepared.action_repeat)  # `acting` counts.
          self._server = ParameterServer(unused, prepared.counter, self._gate)
          service = ActingAndServing(acting, self._server)
        training, addresses = self._training, self._replay_addresses
        loop.train(prepared, training, service, addresses, self._monitor, stop, self._mixer)

  def _make_server(self, prepared: loop.Prepared) -> InferenceServer:
    return make_server(
      self._options,
      prepared.agent,
      self._env_groups,
      replicas.local_devices(self._options.actor_devices, '--actor_devices'),
      prepared.environment_spec,
      prepared.action_repeat,
      seed=self._seed.child('replica', self._training.replica),
      num_environments=self._num_environments,
      replay_addresses=self._replay_addresses,
      sinks=self._sinks,
      observers=self._observers,
      counter=prepared.counter,
      inbox=self._inbox,
    )
