"""Plays evaluations in a compiled function, in environments written in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dm_env.specs
import jax

from agents import shapes
from agents.agent import Agent
from agents.anakin.environment import JaxEnvironment, evaluated
from agents.anakin.evaluation import Evaluation
from agents.seeding import Seed
from nodes.evaluation.player import Evaluated
from nodes.learning import serialisation
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.options import EvaluationOptions


class CompiledPlayer:
  """A `Player` with parameters that it fetches from a compiled loop.

  One evaluation uses a single version of the parameters. All evaluations use the same seed, so episodes
  differ only through the agent's actions.
  """

  record = None  # Environments inside a compiled function cannot be recorded.

  def __init__(
    self,
    make_agent: Callable[[dm_env.specs.Array, dm_env.specs.Array], Agent],
    make_environment: Callable[[], JaxEnvironment],
    anakin: Any,
    monitor: Any,
    name: str,
    options: EvaluationOptions,
    seed: Seed,
  ):
    """Makes the environment.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: builds one environment.
      anakin: Courier client of `nodes.anakin.Anakin`.
      monitor: Courier client of the monitor, in a program with learners beside `anakin`, of all of which
        `evaluated_frames` then are; None in a program with one.
      name: of the evaluator.
      options: of evaluation.
      seed: of environments and actions.
    """
    del name
    environment = evaluated(make_environment())
    agent = make_agent(environment.observation_spec, environment.action_spec)
    self._template = shapes.params(agent)
    self._evaluation = Evaluation(
      agent,
      environment,
      options.eval_envs,
      options.episodes_each,
      max_episode_steps=options.eval_episode_steps,
    )
    self._anakin, self._monitor = anakin, monitor
    self._episodes_each, self._seed = options.episodes_each, seed

  def prepare(self, should_stop: Callable[[], bool]) -> None:
    """Compiles, while the loop compiles too, and waits for the first parameters.

    A resumed run has steps before its loop is compiled, and `get_params` waits for that.
    """
    activity.mark(activity.COMPILING)
    self._evaluation.compile(self._template, jax.eval_shape(self._seed.key))
    with activity.doing(activity.WAITING_FOR_PARAMETERS):
      rpc.call(self._anakin.futures.get_params, should_stop, 'get_params')

  def play(self, should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
    """Plays an evaluation with the newest parameters; see `Player`."""
    progress = None
    if self._monitor is not None:
      progress = rpc.call(self._monitor.futures.progress, should_stop, 'progress')
    fetched = rpc.call(self._anakin.futures.get_params, should_stop, 'get_params')
    if fetched is None:
      raise lifecycle.Stopped
    counts, params = fetched[0], serialisation.from_data(fetched[1], self._template)
    evaluation, episodes_each = self._evaluation, self._episodes_each
    state = evaluation.begin(params, self._seed.key())
    while True:
      rounds = evaluation.rounds(state)
      if rounds >= (1 if is_out_of_time() or evaluation.was_cut(state) else episodes_each):
        break
      if should_stop():
        raise lifecycle.Stopped
      activity.mark(activity.COMPILED_LOOP)
      state = evaluation.play(params, state)
    returns = jax.device_get(state.returns)[:, :rounds]
    # JAX environments do not repeat actions.
    frames = counts['environment_frames'] if progress is None else progress['actor_steps']
    return returns.ravel().tolist(), {'evaluated_frames': float(frames)}

  def close(self) -> None:
    """Does nothing: the environment is a part of the compiled function."""
