"""IMPALA's evaluator: fetches parameters and plays whole episodes with them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
from acme import specs

from agents.agent import Agent
from environments.base import BatchedEnvironment
from nodes.evaluator import returns
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import ServingOptions
from nodes.inference.server import make_server
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.periodic_evaluator import Evaluated, EvaluationOptions, PeriodicEvaluator


class ImpalaEvaluator(PeriodicEvaluator):
  """Evaluates every `period` actor steps, and once more with the final parameters.

  One evaluation uses a single policy_version.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    learner: Any,
    monitor: Any,
    options: EvaluationOptions,
  ):
    """Initialises an evaluator.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      learner: Courier client of `nodes.learner.LearnerNode`.
      monitor: Courier client of the monitor.
      options: of evaluation.
    """
    super().__init__(monitor, options)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._learner = learner

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    seed = self._seed.child('restart', lifecycle.restart_count(), 'environments')
    environment = self._make_environment(self._num_envs, seed.number())
    spec, repeat = environment.spec(), environment.action_repeat
    agent = self._make_agent(spec.observations, spec.actions)
    env_group = EnvGroupSpec('evaluator/0', 0, self._num_envs, 0, training=False)
    serving = ServingOptions(
      devices=(0,),
      batch_size=self._num_envs,
      timeout_ms=0.0,
      one_core=False,
      num_environments=self._num_envs,
      audit_dir='',
      seed=self._seed,
    )
    devices = jax.local_devices(backend='cpu')[:1]
    server = make_server(serving, agent, [env_group], devices, spec, repeat)
    started = False

    def play(should_stop: Callable[[], bool], is_late: Callable[[], bool]) -> Evaluated:
      nonlocal started
      names = ['policy_version', 'params', 'counts']
      ask = functools.partial(self._learner.futures.get_variables, names)
      fetched = rpc.call(ask, should_stop, 'get_variables')
      if fetched is None:
        raise lifecycle.Stopped
      version, params, counts = fetched
      server.set_params(version, params)
      if not started:
        activity.mark(activity.COMPILING)
        server.compile()
        server.start()
        started = True
      frames = {'evaluated_frames': float(counts['environment_frames'])}
      return returns(server, environment, self._episodes_each, should_stop, is_late), frames

    with contextlib.closing(environment), contextlib.closing(server):
      self._run_periodically(play)
