"""A peer of GALA with environments on CPUs: Sebulba's host unit, which mixes its parameters."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Nest
from environments.base import BatchedEnvironment
from nodes.gossip.gossiping import Gossiping
from nodes.gossip.options import GossipOptions
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.inference_learner import InferenceLearner
from nodes.learning import loop
from nodes.learning.options import TrainingOptions
from nodes.unrolls.options import UnrollSinks


class GossipInferenceLearner(Gossiping, InferenceLearner):
  """Gossip-based actor-learner (Assran et al. 2019) with actors and replay of its own.

  Each learner step is a local update; then the peer does one round of gossip and publishes the mixed
  parameters. All peers begin with the same parameters. A peer that restarts continues from its newest
  checkpoint.
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
    gossip: GossipOptions,
    peer: int,
    successors: Sequence[Any],
  ):
    """Initialises a peer.

    Args:
      make_agent: as in `InferenceLearner`.
      make_environment: as in `InferenceLearner`.
      env_groups: as in `InferenceLearner`; of this peer's actors.
      replay_addresses: as in `InferenceLearner`; of this peer's replay.
      monitor: as in `InferenceLearner`.
      port: as in `InferenceLearner`.
      options: as in `InferenceLearner`.
      seed: as in `InferenceLearner`, this peer's own.
      num_environments: as in `InferenceLearner`.
      sinks: as in `InferenceLearner`.
      training: as in `InferenceLearner`, for a single replica.
      gossip: options of gossip.
      peer: index of this peer.
      successors: Courier clients of the peers that it sends to, in the order of `gossip`.
    """
    Gossiping.__init__(self, gossip, peer, successors)
    InferenceLearner.__init__(
      self,
      make_agent,
      make_environment,
      env_groups,
      replay_addresses,
      monitor,
      port=port,
      options=options,
      seed=seed,
      num_environments=num_environments,
      sinks=sinks,
      training=training,
    )

  def run(self) -> None:
    """Trains until `num_steps`, then serves evaluators until the program stops."""
    with contextlib.closing(self._exchange):
      super().run()

  def _make_mixer(self, stop: threading.Event) -> loop.Mixer:
    mix = lambda params: self._mixed(params, stop.is_set)  # noqa: E731
    return _Mixer(mix, self._exchange.measure, self._exchange.leave)


@dataclasses.dataclass(frozen=True)
class _Mixer:
  """A `loop.Mixer`; public methods of the node would be RPCs."""

  mix: Callable[[Nest], Nest]
  measure: Callable[[], dict[str, float]]
  finish: Callable[[], None]
