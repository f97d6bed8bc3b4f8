"""Plays evaluations with parameters that are fetched from a learner, and inference of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from acme import specs

from agents import shapes
from agents.agent import Agent
from agents.seeding import Seed
from environments.base import BatchedEnvironment, describe
from nodes.evaluation.player import Evaluated
from nodes.evaluation.remote import RemotePlayer
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.server import make_server
from nodes.inference.serving import one_group
from nodes.learning import serialisation
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.options import EvaluationOptions


class FetchingPlayer(RemotePlayer):
  """A `Player` whose inference server is in this process, on a CPU.

  One evaluation uses a single policy_version.
  """

  def __init__(
    self,
    make_agent: Callable[[specs.Array, specs.Array], Agent],
    make_environment: Callable[[int, int], BatchedEnvironment],
    learner: Any,
    name: str,
    options: EvaluationOptions,
    seed: Seed,
  ):
    """Makes the environments, and a server that does not act yet.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: takes (number of environments, seed).
      learner: Courier client of a `nodes.learning.parameter_service.ParameterService`.
      name: of the evaluator.
      options: of evaluation.
      seed: of environments and actions.
    """
    spec, action_repeat = describe(make_environment)
    agent = make_agent(spec.observations, spec.actions)
    self._learner, self._template = learner, shapes.params(agent)
    env_group = EnvGroupSpec(name, 0, options.eval_envs, 0, training=False)
    serving = one_group(env_group, seed, options.eval_envs)
    devices = jax.local_devices(backend='cpu')[:1]
    self._server = make_server(serving, agent, devices, spec, action_repeat)
    super().__init__(make_environment, self._server, name, options, seed)
    self._opened.callback(self._server.close)

  def prepare(self, should_stop: Callable[[], bool]) -> None:
    """Compiles and starts the server, with the first parameters."""
    self._fetch(should_stop)
    activity.mark(activity.COMPILING)
    self._server.compile()
    self._server.start()

  def play(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
    """Plays an evaluation with the newest parameters; see `Player`."""
    frames = self._fetch(should_stop)
    returns, _ = super().play(self._checked(should_stop), is_out_of_time)
    return returns, {'evaluated_frames': frames}

  def record(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> bytes:
    """Records a video with the newest parameters; see `Player`."""
    self._fetch(should_stop)
    return super().record(self._checked(should_stop), is_out_of_time)

  def _fetch(self, should_stop: Callable[[], bool]) -> float:
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
    return float(counts['environment_frames'])

  def _checked(self, should_stop: Callable[[], bool]) -> Callable[[], bool]:
    """Returns `should_stop`, which also raises the error that stopped the server, if any."""

    def stops() -> bool:
      self._server.check()
      return should_stop()

    return stops
