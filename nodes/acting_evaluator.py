"""IMPALA's evaluator: fetches parameters and plays whole episodes with them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment
from nodes import lifecycle, rpc
from nodes.acting_actor import InProcess, make_server
from nodes.actor import RemotePolicy, episode_returns
from nodes.evaluator import evaluate_now_and_then
from nodes.layout import StreamSpec


class ActingEvaluator:
  """Evaluates every `period` actor steps, and once more with the final parameters.

  One evaluation has parameters of one version.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    learner: Any,
    monitor: Any,
    num_envs: int,
    episodes: int,
    period: int,
    seed: int,
  ):
    """Initialises an evaluator.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      learner: Courier client of the learner.
      monitor: Courier client of the monitor.
      num_envs: environments played at once.
      episodes: in one evaluation, rounded up to a multiple of `num_envs`.
      period: actor steps between evaluations.
      seed: of the environments.
    """
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._learner = learner
    self._monitor = monitor
    self._num_envs = num_envs
    self._episodes_each = math.ceil(episodes / num_envs)
    self._period = period
    self._seed = seed

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    environment = self._make_environment(self._num_envs, self._seed)
    spec, repeat = environment.spec(), environment.action_repeat
    agent = self._make_agent(spec.observations, spec.actions)
    stream = StreamSpec('evaluator/0', 0, self._num_envs, 0, training=False)
    server = make_server(agent, stream, spec, repeat, self._num_envs, self._seed)
    client = InProcess(server)
    started = False

    def play(should_stop: Callable[[], bool]) -> tuple[Sequence[float], Mapping[str, float]]:
      nonlocal started
      names = ['policy_version', 'params', 'counts']
      ask = functools.partial(self._learner.futures.get_variables, names)
      fetched = rpc.call(ask, should_stop, 'get_variables')
      if fetched is None:
        raise lifecycle.Stopped
      version, params, counts = fetched
      server.set_params(version, params)
      if not started:
        server.compile()
        server.start()
        started = True
      policy = RemotePolicy(client, 'evaluator/0', lifecycle.new_run_id(), 0, should_stop)
      returns = list(episode_returns(environment, policy, self._episodes_each))
      return returns, {'evaluated_frames': float(counts['environment_frames'])}

    try:
      evaluate_now_and_then(self._monitor, self._period, play)
    finally:
      client.close()
      environment.close()
