"""Anakin's evaluator: fetches parameters and plays whole episodes with them, in JAX."""

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
from nodes.learning import serialisation
from nodes.runtime import activity, lifecycle, rpc
from nodes.runtime.options import EvaluationOptions
from nodes.runtime.periodic_evaluator import Evaluated, PeriodicEvaluator


class AnakinEvaluator(PeriodicEvaluator):
  """Evaluates every `period` actor steps, and once more with the final parameters.

  One evaluation uses a single version of the parameters. All evaluations use the same seed, so episodes
  differ only through the agent's actions.
  """

  def __init__(
    self,
    make_agent: Callable[[dm_env.specs.Array, dm_env.specs.Array], Agent],
    make_environment: Callable[[], JaxEnvironment],
    anakin: Any,
    monitor: Any,
    name: str,
    options: EvaluationOptions,
    seed: Seed,
    several: bool = False,
  ):
    """Initialises an evaluator.

    Args:
      make_agent: builds the agent from the specs of observations and actions.
      make_environment: builds one environment.
      anakin: Courier client of `nodes.anakin.Anakin`.
      monitor: Courier client of the monitor.
      name: of the node, such as 'evaluator/0'.
      options: of evaluation.
      seed: of environments and actions.
      several: whether the program has learners beside `anakin`; `evaluated_frames` then are of all.
    """
    super().__init__(monitor, name, options, seed)
    self._make_agent = make_agent
    self._make_environment = make_environment
    self._anakin = anakin
    self._several = several

  def run(self) -> None:
    """Evaluates until the final evaluation is done or the program stops."""
    environment = evaluated(self._make_environment())
    agent = self._make_agent(environment.observation_spec, environment.action_spec)
    evaluation = Evaluation(
      agent, environment, self._num_envs, self._episodes_each, max_episode_steps=self._max_steps
    )

    # While the loop compiles too. Compiling in the first evaluation would leave a short run no time for
    # others, and count against the share of the time that evaluations may take.
    activity.mark(activity.COMPILING)
    template = shapes.params(agent)
    evaluation.compile(template, jax.eval_shape(self._seed.key))

    # A resumed run has steps before its loop is compiled, and get_params waits for that.
    with activity.doing(activity.WAITING_FOR_PARAMETERS):
      try:
        rpc.call(
          lambda: self._anakin.futures.get_params(), lifecycle.stop_event().is_set, 'get_params'
        )
      except lifecycle.Stopped:
        return

    def play(should_stop: Callable[[], bool], is_out_of_time: Callable[[], bool]) -> Evaluated:
      if self._several:
        progress = rpc.call(self._monitor.futures.progress, should_stop, 'progress')
      fetched = rpc.call(self._anakin.futures.get_params, should_stop, 'get_params')
      if fetched is None:
        raise lifecycle.Stopped
      counts, params = fetched[0], serialisation.from_data(fetched[1], template)
      state = evaluation.begin(params, self._seed.key())
      while True:
        rounds = evaluation.rounds(state)
        if rounds >= (1 if is_out_of_time() or evaluation.was_cut(state) else self._episodes_each):
          break
        if should_stop():
          raise lifecycle.Stopped
        activity.mark(activity.COMPILED_LOOP)
        state = evaluation.play(params, state)
      returns = jax.device_get(state.returns)[:, :rounds]
      # JAX environments do not repeat actions.
      frames = progress['actor_steps'] if self._several else counts['environment_frames']
      return returns.ravel().tolist(), {'evaluated_frames': float(frames)}

    self._run_periodically(play)
