"""Measures what acting costs with several sizes, and chooses one; see `programs.sizes`."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agents.types import Timestep
from environments import contract_check
from nodes.inference import batching
from nodes.runtime import timing
from nodes.runtime.timing import Cost
from programs import registry, size_choice
from programs.options import configs
from programs.parts import default_placement
from programs.size_choice import Acting, Machine, Size
from programs.sizes import BATCH, ENVS, infers_apart


class _Costs:
  """What calls cost here, each measured once; `size_choice.Costs`."""

  def __init__(self, module: Any, config: Any):
    """Makes the agent.

    Args:
      module: the program's.
      config: resolved; the sizes in it do not matter.
    """
    self._config = config
    self._environments = module.environments
    self._spec = module.environments.make_spec(config.env, config.env_options)
    self._agent = module.make_agent(config)(self._spec.observations, self._spec.actions)
    from nodes.inference import microbenchmark  # It imports JAX, as the agent has.

    self._benchmark = microbenchmark
    self._stepped = functools.cache(self._step)
    self.request = functools.cache(self._request)

  def _step(self, num_envs: int) -> tuple[Cost, Timestep, np.ndarray]:
    """Returns the cost of a step, and a timestep and actions of so many environments."""
    config, rng = self._config, np.random.default_rng(0)
    environment = self._environments.make(config.env, num_envs, config.seed, config.env_options)
    try:
      timestep = environment.reset()

      def draw() -> np.ndarray:
        return contract_check.random_actions(
          rng, self._spec.actions, timestep.observation, num_envs
        )

      def step(action: np.ndarray) -> None:
        nonlocal timestep
        timestep = environment.step(action)

      return timing.cost(step, draw), Timestep(*timestep), draw()
    finally:
      environment.close()

  def environment(self, num_envs: int) -> Cost:
    return self._stepped(num_envs)[0]

  def _request(self, num_envs: int) -> Cost:
    return self._benchmark.request(*self._stepped(num_envs)[1:])

  def inference(self, num_requests: int, num_envs: int) -> Cost:
    if infers_apart(self._config) and self._config.accelerator != 'cpu':
      return Cost(0.0, 0.0)
    timestep = self._stepped(num_envs)[1]
    return self._benchmark.inference(self._agent, self._spec, num_requests, num_envs, timestep)


def candidates(
  module: Any, asked: Sequence[str], rest: Mapping[str, Any]
) -> tuple[dict[int, list[Size]], str]:
  """Returns the sizes to try, by environments of an actor, and what limits them, in words.

  Args:
    module: the program's.
    asked: the options to choose.
    rest: the user's other options; their config is valid.
  """
  first = configs.resolve(module, dict(rest))
  if ENVS not in asked:
    return {first.envs_per_actor: _batches(first, asked)}, ''
  sizes: dict[int, list[Size]] = {}
  base = first.envs_per_actor
  for factor in _doubled(1, size_choice.MOST):
    config = configs.resolve(module, {**rest, ENVS: base * factor})
    try:
      configs.check_numbers(config)
    except ValueError as error:
      return sizes, f'no more, since {str(error).rstrip(".")}'
    sizes[base * factor] = _batches(config, asked)
  return sizes, f"at most {size_choice.MOST} times the preset's {base}"


def _batches(config: Any, asked: Sequence[str]) -> list[Size]:
  """Returns the sizes to try with a number of environments, by batch size."""
  n = config.env_group_size
  if not infers_apart(config):
    return [Size(config.envs_per_actor, n, n, 1)]
  largest = config.inference_batch_size
  every = config.actors_per_server * config.env_groups
  sizes = _doubled(n, largest) if BATCH in asked else [largest]
  return [Size(config.envs_per_actor, size, n, min(size // n, every)) for size in sizes]


_doubled = batching.bucket_sizes


def _machine(config: Any) -> Machine:
  if not infers_apart(config):
    return Machine(config.cpu_cores, config.num_actors, apart=False)
  return Machine(config.cpu_cores / config.num_servers, config.actors_per_server, apart=True)


def _why_envs(chosen: Acting, bests: Sequence[Acting], limit: str) -> str:
  tried = ', '.join(f'{1e6 * each.cpu:,.1f} with {each.size.envs_per_actor}' for each in bests)
  parts = (
    f'environment {1e6 * chosen.environment:,.1f}, request {1e6 * chosen.request:,.1f}, inference '
    f'{1e6 * chosen.inference:,.1f}'
  )
  if bests[-1].cycle > size_choice.LONG:
    limit = f'a step of all takes {bests[-1].cycle:.2f} s, so more were not tried'
  return (
    f'--{ENVS}=auto: {chosen.size.envs_per_actor} (CPU time of acting, us a step: {tried}; of the '
    f'choice: {parts}; {limit})'
  )


def _why_batch(chosen: Acting, tried: Sequence[Acting]) -> str:
  costs = ', '.join(
    f'{each.size.inference_batch_size} in {1e3 * each.batch:,.2f} ms' for each in tried
  )
  return (
    f'--{BATCH}=auto: {chosen.size.inference_batch_size} (batches: {costs}; at most half of the '
    'environments of a node, or one request)'
  )


def choose(
  program: str, asked: Sequence[str], rest: Mapping[str, Any]
) -> tuple[dict[str, int], list[str]]:
  """Returns the chosen numbers by option, and why, a line each.

  Args:
    program: its name.
    asked: the options to choose.
    rest: the user's other options, valid with the program's own sizes.

  Raises:
    ValueError: the program or the environment cannot be made; one sentence.
  """
  module = registry.load(program)
  config = configs.resolve(module, dict(rest))
  if not infers_apart(config) or config.inference_nodes:
    os.environ.update(default_placement.ONE_THREAD)  # As these nodes; JAX is not imported yet.
  sizes, limit = candidates(module, asked, rest)
  chosen, bests, batches = size_choice.choose(sizes, _Costs(module, config), _machine(config))
  numbers, why = {}, []
  if ENVS in asked:
    numbers[ENVS] = chosen.size.envs_per_actor
    why.append(_why_envs(chosen, bests, limit))
  if BATCH in asked:
    numbers[BATCH] = chosen.size.inference_batch_size
    why.append(_why_batch(chosen, batches))
  return numbers, why
