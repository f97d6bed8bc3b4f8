"""IMPALA's evaluator: fetches parameters and plays whole episodes with them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
from acme import specs

from agents import shapes
from agents.agent import Agent
from agents.seeding import Seed
from agents.types import Nest
from environments.base import BatchedEnvironment
from nodes.evaluator import play_returns, record_video
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.inference.server import InferenceServer, make_server
from nodes.learning import serialisation
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.options import EvaluationOptions
from nodes.runtime.periodic_evaluator import Evaluated, PeriodicEvaluator
from nodes.runtime.video_schedule import VideoRecording


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
    name: str,
    options: EvaluationOptions,
    seed: Seed,
  ):
    """Initialises an evaluator.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      learner: Courier client of `nodes.learner.LearnerNode`.
      monitor: Courier client of the monitor.
      name: of the node, such as 'evaluator/0'.
      options: of evaluation.
      seed: of environments and actions.
    """
    super().__init__(monitor, name, options, seed)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._learner = learner

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    activity.mark(activity.STARTING)
    seed = self._seed.child('restart', lifecycle.restart_count())
    environment = self._make_environment(self._num_envs, seed.child('environments').number())
    spec, repeat = environment.spec(), environment.action_repeat
    agent = self._make_agent(spec.observations, spec.actions)
    env_group = EnvGroupSpec(self._name, 0, self._num_envs, 0, training=False)
    server = make_server(
      InferenceOptions(inference_batch_size=self._num_envs, inference_timeout_ms=0.0),
      agent,
      [env_group],
      jax.local_devices(backend='cpu')[:1],
      spec,
      repeat,
      seed=self._seed,
      num_environments=self._num_envs,
    )
    policy = _NewestPolicy(server, self._learner, shapes.params(agent))

    def play(should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
      frames = {'evaluated_frames': policy.fetch(should_stop)}
      stops = policy.checked(should_stop)
      played = play_returns(
        server,
        self._name,
        environment,
        self._episodes_each,
        stops,
        is_out_of_time,
        self._max_steps,
      )
      return played, frames

    with contextlib.ExitStack() as opened:
      opened.callback(environment.close)
      opened.callback(server.close)
      recording: VideoRecording | None = None
      if self._video_frames:
        recorded = self._make_environment(1, seed.child('video').number())
        opened.callback(recorded.close)

        def recording(should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> bytes:
          policy.fetch(should_stop)
          stops = policy.checked(should_stop)
          return record_video(
            server,
            self._name,
            recorded,
            self._num_envs,
            self._video_frames,
            stops,
            is_out_of_time,
          )

      self._run_periodically(play, recording, prepare=policy.fetch)  # The first fetch compiles.


class _NewestPolicy:
  """An inference server with the newest parameters of a learner; starts with the first ones."""

  def __init__(self, server: InferenceServer, learner: Any, template: Nest):
    self._server = server
    self._learner = learner
    self._template = template
    self._started = False

  def fetch(self, should_stop: Callable[[], bool]) -> float:
    """Gives the newest parameters to the server; returns their environment frames.

    Raises:
      lifecycle.Stopped: once `should_stop` returns True.
      ValueError: if the learner's parameters are not those of the agent; one sentence.
    """
    names = ['policy_version', 'params', 'counts']
    ask = functools.partial(self._learner.futures.get_variables, names)
    fetched = rpc.call(ask, should_stop, 'get_variables')
    if fetched is None:
      raise lifecycle.Stopped
    version, params, counts = fetched
    self._server.set_params(version, serialisation.from_data(params, self._template))
    if not self._started:
      activity.mark(activity.COMPILING)
      self._server.compile()
      self._server.start()
      self._started = True
    return float(counts['environment_frames'])

  def checked(self, should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """Returns `should_stop`, which also raises the error that stopped the server, if any."""

    def stops() -> bool:
      self._server.check()
      return should_stop()

    return stops
