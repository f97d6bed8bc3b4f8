"""The learner from replay: alone, or as Sebulba's host unit with inference in the same process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment
from nodes.gossip.mixer import Mixer
from nodes.gossip.options import Peer
from nodes.inference.server import InferenceServer, make_server
from nodes.inference.serving import Serving
from nodes.inference.socket_server import SocketServer
from nodes.learning import replicas
from nodes.learning.options import TrainingOptions
from nodes.learning.parameter_server import ParameterServer
from nodes.learning.parameter_service import ActingAndServing, ParameterService
from nodes.learning.replay_training import (
  ParameterConsumer,
  Prepared,
  ReplayTraining,
  prepare,
)
from nodes.population.member import Member
from nodes.population.options import Place
from nodes.runtime import lifecycle
from nodes.runtime.counters import ActingCounters


class LearnerNode(ParameterService):
  """Trains until `num_steps`, then serves until the program stops: parameters, actions, or both.

  Without `serving`, other nodes act and fetch the parameters by Courier. With it, the node acts too: it
  serves actors on the actor devices, to which parameters move on the devices. It then listens from
  construction, so that actors connect while JAX compiles, and requests wait until the node is ready. A
  failing node sends no reply: the actor retries with the next incarnation.

  With `peer`, each learner step is a local update, after which the node mixes its parameters with those
  of its neighbours and publishes the result. A peer that restarts continues from its newest checkpoint.
  With `member` it is one of a population.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    replay_addresses: Sequence[str],
    monitor: Any,
    training: TrainingOptions,
    *,
    serving: Serving | None = None,
    port: int | None = None,
    serves_params: bool = True,
    coordinator: str | None = None,
    peer: Peer | None = None,
    member: Place | None = None,
  ):
    """Initialises the node; the work starts in `run`.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed); used for its specs only.
      replay_addresses: host:port of each Reverb server.
      monitor: client of the monitor.
      training: options of learning.
      serving: what the node acts for; None if other nodes act. Actor devices may overlap with learner
        devices.
      port: to listen on, with `serving`.
      serves_params: whether to publish the parameters for the calls of `ParameterService`; always the
        case without `serving`.
      coordinator: host:port of the JAX coordinator; None for one replica.
      peer: its place among peers, each with actors and replay of its own; None for a learner that mixes
        nothing.
      member: its place in a population, of members with actors and replay of their own; None for a
        learner that trains alone.

    Raises:
      OSError: if the port is in use.
    """
    super().__init__()
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._replay_addresses = replay_addresses
    self._monitor = monitor
    self._training = training
    self._serving = serving
    self._serves_params = serves_params or serving is None
    self._coordinator = coordinator
    self._inbox: SocketServer | None = None
    if serving:
      self._inbox = SocketServer(port, shared_memory=serving.options.shared_memory)
    self._mixer = Mixer(peer) if peer else None
    self._member = Member(member) if member else None
    if self._mixer:
      self.offer, self.leave = self._mixer.offer, self._mixer.leave  # RPCs of its predecessors.

  def run(self) -> None:
    """Trains until `num_steps`, then serves until the program stops."""
    stop, training = lifecycle.stop_event(), self._training
    with contextlib.ExitStack() as opened:
      for part in (self._mixer, self._inbox):
        if part:
          opened.callback(part.close)
      opened.enter_context(self._gate.release_on_exit(stop))
      prepared = prepare(self._make_agent, self._make_environment, training, self._coordinator)
      service = self._make_service(prepared, opened)
      ReplayTraining(
        prepared,
        training,
        service,
        self._replay_addresses,
        self._monitor,
        stop,
        self._mixer,
        self._member,
      ).run()

  def _make_service(self, prepared: Prepared, opened: contextlib.ExitStack) -> ParameterConsumer:
    """Returns what takes the parameters; `opened` closes it."""
    counters = ActingCounters(prepared.counter, prepared.action_repeat)
    if self._serving is None:
      self._server = ParameterServer(counters, prepared.counter, self._gate)
      return self._server
    acting = self._make_inference(self._serving, prepared)
    opened.callback(acting.close)
    if not self._serves_params:
      return acting
    self._server = ParameterServer(counters, prepared.counter, self._gate)  # `acting` counts.
    return ActingAndServing(acting, self._server)

  def _make_inference(self, serving: Serving, prepared: Prepared) -> InferenceServer:
    return make_server(
      serving,
      prepared.agent,
      replicas.local_devices(serving.options.actor_devices, '--actor_devices'),
      prepared.environment_spec,
      prepared.action_repeat,
      replay_addresses=self._replay_addresses,
      counter=prepared.counter,
      inbox=self._inbox,
    )
