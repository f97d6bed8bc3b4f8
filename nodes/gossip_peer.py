"""A peer of GALA: Anakin's loop, which mixes parameters with its neighbours between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import dm_env.specs
import jax
import numpy as np
from absl import logging

from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment
from agents.anakin.loop import AnakinLoop, AnakinState
from agents.gossip.mixing import Message
from nodes.anakin import Anakin
from nodes.gossip import vector
from nodes.gossip.exchange import Exchange
from nodes.gossip.options import GossipOptions
from nodes.learning.options import CompiledLoopOptions
from nodes.runtime import activity, lifecycle
from rundir import checkpoints, saved_params

_FETCH_SECONDS = 60.0  # For the parameters of one neighbour.


class GossipPeer(Anakin):
  """Gossip-based actor-learner (Assran et al. 2019, "Gossip-based actor-learner architectures").

  Each call of the loop is a local update; then the peer does one round of gossip. Only parameters are
  mixed: the optimizer's state is the peer's own. All peers begin with the same parameters. A peer that
  restarts continues from its newest checkpoint; without one, from the parameters of a neighbour.
  """

  def __init__(
    self,
    make_agent: Callable[[dm_env.specs.Array, dm_env.specs.Array], Agent],
    make_environment: Callable[[], JaxEnvironment],
    monitor: Any,
    options: CompiledLoopOptions,
    gossip: GossipOptions,
    successors: Sequence[Any],
  ):
    """Initialises a peer.

    Args:
      make_agent: as in `Anakin`.
      make_environment: as in `Anakin`.
      monitor: as in `Anakin`.
      options: of the peer's own loop.
      gossip: options of gossip.
      successors: Courier clients of the peers that it sends to, in the order of `gossip`.
    """
    super().__init__(make_agent, make_environment, monitor, options)
    self._gossip = gossip
    self._successors = successors
    self._life = lifecycle.new_incarnation()
    self._exchange = Exchange(gossip, successors, self._life)
    self._stop = threading.Event()

  def offer(self, sender: int, life: int, sequence: int, weight: float, params: np.ndarray) -> bool:
    """Keeps a message of a predecessor until the next round. An RPC; it never waits.

    Args:
      sender: index of the predecessor.
      life: its incarnation.
      sequence: number of the message.
      weight: of the message; see `agents.gossip.mixing`.
      params: float32 `[D]`.

    Returns:
      As `nodes.gossip.mailbox.Mailbox.put`.
    """
    return self._exchange.mailbox.put(sender, life, sequence, Message(weight, params))

  def leave(self, sender: int, life: int) -> None:
    """Notes that a predecessor has finished training. An RPC."""
    self._exchange.mailbox.leave(sender, life)

  def _run(self, stop: threading.Event) -> None:
    self._stop = stop
    try:
      super()._run(stop)
    finally:
      self._exchange.close()

  def _begin(
    self, agent: Agent, loop: AnakinLoop, checkpoint: checkpoints.Checkpoint | None
  ) -> AnakinState:
    state = super()._begin(agent, loop, checkpoint)
    if checkpoint is not None:
      return state
    if lifecycle.restart_count() and (found := self._of_a_neighbour()) is not None:
      return self._adopted(agent, loop, *found)
    if saved_params.has_initial(self._options.run.run_dir):
      return state
    # A peer has environments of its own, but the initial parameters of all.
    return state._replace(learner=loop.init(self._gossip.params_seed.key()).learner)

  def _adopted(
    self, agent: Agent, loop: AnakinLoop, counts: dict[str, int], params: Any
  ) -> AnakinState:
    """Returns a state with a neighbour's parameters, and takes over its counters.

    The peer's own counters are lost. With the neighbour's it finishes when the others do.
    """
    self._counts = dict(counts)
    seed = self._options.seed.child('restart', lifecycle.restart_count())
    state = loop.init(seed.key())
    learner = agent.with_params(jax.device_get(state.learner), params)
    steps = np.int32(counts['learner_steps'])
    return loop.put(state._replace(learner=learner._replace(learner_steps=steps)))

  def _of_a_neighbour(self) -> tuple[dict[str, int], Any] | None:
    """Returns counters and parameters of the first successor that replies; None if none does."""
    for client in self._successors:
      with activity.doing(activity.WAITING_FOR_PARAMETERS):
        try:
          found = client.futures.get_params().result(timeout=_FETCH_SECONDS)
        except Exception as error:  # Courier has many.
          logging.warning('a neighbour sends no parameters: %s', error)
          continue
      if found is not None:
        logging.info('starting with the parameters of a neighbour: %s', found[0])
        return found
    return None

  def _train(self, loop: AnakinLoop) -> None:
    super()._train(loop)
    if not self._successors:
      return
    assert self._state is not None
    learner = self._state.learner
    own = vector.flatten(learner.params)
    with activity.doing(activity.WAITING_FOR_PEERS):
      mixed = self._exchange(own, self._stop.is_set)
    if mixed is not own:
      params = vector.unflatten(mixed, learner.params)
      self._state = self._state._replace(learner=learner._replace(params=params))
      self._published = dict(self._counts), params
    if self._counts['actor_steps'] >= self._options.run.num_steps:
      self._exchange.leave()

  def _measure(self, seconds: float) -> dict[str, float]:
    return super()._measure(seconds) | self._exchange.measure()
