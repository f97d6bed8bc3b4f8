"""A peer of GALA: Anakin's loop, which mixes parameters with its neighbours between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import dm_env.specs
import jax
import numpy as np
from absl import logging

from agents import optimizers
from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment
from agents.anakin.loop import AnakinLoop, AnakinState
from agents.seeding import Seed
from nodes.anakin import Anakin
from nodes.gossip.gossiping import Gossiping
from nodes.gossip.options import GossipOptions
from nodes.learning import serialisation
from nodes.learning.options import LoopOptions
from nodes.runtime import activity, lifecycle
from nodes.runtime.options import RunOptions
from rundir import checkpoints, saved_params

_FETCH_SECONDS = 60.0  # For the parameters of one neighbour.


class GossipPeer(Gossiping, Anakin):
  """Gossip-based actor-learner (Assran et al. 2019, "Gossip-based actor-learner architectures").

  Each call of the loop is a local update; then the peer does one round of gossip. All peers begin with
  the same parameters. A peer that restarts continues from its newest checkpoint; without one, from the
  parameters of a neighbour.
  """

  def __init__(
    self,
    make_agent: Callable[[dm_env.specs.Array, dm_env.specs.Array], Agent],
    make_environment: Callable[[], JaxEnvironment],
    monitor: Any,
    options: LoopOptions,
    run: RunOptions,
    gossip: GossipOptions,
    successors: Sequence[Any],
    *,
    peer: int,
    seed: Seed,
    params_seed: Seed,
  ):
    """Initialises a peer.

    Args:
      make_agent: as in `Anakin`.
      make_environment: as in `Anakin`.
      monitor: as in `Anakin`.
      options: of the peer's own loop.
      run: as in `Anakin`; `num_steps` are the peer's own.
      gossip: options of gossip.
      successors: Courier clients of the peers that it sends to, in the order of `gossip`.
      peer: index of this peer.
      seed: of all random numbers of this peer, except the initial parameters.
      params_seed: of the initial parameters, the same in all peers.
    """
    Gossiping.__init__(self, gossip, peer, successors)
    Anakin.__init__(
      self,
      make_agent,
      make_environment,
      monitor,
      options,
      run,
      seed=seed,
      name=f'peer/{peer}',
      learner=peer,
    )
    self._params_seed = params_seed
    self._stop = threading.Event()

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
    if lifecycle.restart_count() and (found := self._fetch_from_neighbour()) is not None:
      return self._adopt_neighbour_state(agent, loop, *found)
    if saved_params.has_initial(self._run_options.run_dir):
      return state
    # A peer has environments of its own, but the initial parameters of all.
    return state._replace(learner=loop.init(self._params_seed.key()).learner)

  def _adopt_neighbour_state(
    self, agent: Agent, loop: AnakinLoop, counts: dict[str, int], params: Any
  ) -> AnakinState:
    """Returns a state with a neighbour's parameters, and takes over its counters.

    The peer's own counters are lost. With the neighbour's it finishes when the others do, and its
    learning rate is theirs: a learner step of GALA is one gradient step. The optimizer's moments are
    new.
    """
    self._counts = dict(counts)
    seed = self._seed.child('restart', lifecycle.restart_count())
    state = loop.init(seed.key())
    learner = jax.device_get(state.learner)
    learner = agent.with_params(learner, serialisation.from_data(params, learner.params))
    steps = counts['learner_steps']
    learner = learner._replace(
      learner_steps=np.int64(steps).astype(np.int32),  # Wraps, as the counter in the loop does.
      opt_state=optimizers.with_count(learner.opt_state, steps),
    )
    return loop.put(state._replace(learner=learner))

  def _fetch_from_neighbour(self) -> tuple[dict[str, int], Any] | None:
    """Returns what the first successor that replies has as `get_params`; None if none replies."""
    for client in self._successors:
      with activity.doing(activity.WAITING_FOR_PARAMETERS):
        try:
          found = client.futures.get_params().result(timeout=_FETCH_SECONDS)
        except Exception as error:  # Courier has many.
          logging.warning('could not fetch parameters from a neighbour: %s', error)
          continue
      if found is not None:
        logging.info('starting with the parameters of a neighbour: %s', found[0])
        return found
    return None

  def _train(self, loop: AnakinLoop) -> None:
    super()._train(loop)
    assert self._state is not None
    learner = self._state.learner
    params = self._mixed(learner.params, self._stop.is_set)
    if params is not learner.params:
      self._state = self._state._replace(learner=learner._replace(params=params))
      self._published = dict(self._counts), params

  def _end_training(self) -> None:
    self._exchange.leave()

  def _measure(self, seconds: float) -> dict[str, float]:
    return super()._measure(seconds) | self._exchange.measure()
