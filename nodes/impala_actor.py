"""IMPALA's actor: environments, and local inference with parameters fetched from the learner.

The only kind of actor that imports JAX and Reverb.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment
from nodes.actor import Actor
from nodes.inference.serving import Serving
from nodes.inference_node import FetchingInference
from nodes.runtime import activity, lifecycle


class ImpalaActor:
  """Steps a batch of environments with actions computed in this process, on a CPU.

  An `Actor` steps the environments and sends its requests to an inference server in the same process,
  which assembles the unrolls. Only the parameters come from another process.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    serving: Serving,
    learner: Any,
    replay_addresses: Sequence[str],
    monitor: Any,
    update_period: float,
  ):
    """Initialises an actor; the work starts in `run`.

    Args:
      make_agent: as in `FetchingInference`, and so are the next four.
      make_environment: see above.
      serving: see above; of a single group, the actor's environments, which have the same seed.
      learner: see above.
      replay_addresses: see above.
      monitor: Courier client of the monitor.
      update_period: seconds between parameter fetches.
    """
    self._arguments = make_agent, make_environment, serving, learner, replay_addresses
    self._make_environment, self._seed = make_environment, serving.seed
    (self._env_group,) = serving.env_groups
    self._monitor, self._update_period = monitor, update_period

  def run(self) -> None:
    """Acts until training has finished or the program stops."""
    activity.mark(activity.STARTING)
    stop = lifecycle.stop_event()
    name, devices = self._env_group.actor_id, jax.local_devices(backend='cpu')[:1]
    inference = FetchingInference(*self._arguments, name, self._update_period, devices)
    with contextlib.suppress(lifecycle.Stopped), contextlib.closing(inference):
      if not inference.fetch(stop.is_set):
        return
      inference.start(inference.server.close)
      num_envs = self._env_group.num_envs
      Actor(
        self._make_environment, inference.server, self._monitor, name, num_envs, 1, self._seed
      ).run()
