"""Options of programs with central inference."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from agents.options import option
from programs.options.actors import ActorsConfig

C = TypeVar('C', bound='InferenceConfig')
_SMALL_BATCH = 1024  # Memory for batches of up to so many is allocated without question.


@dataclasses.dataclass(frozen=True)
class InferenceConfig(ActorsConfig):
  """Options of programs with central inference, independent of the agent."""

  num_replicas: int = option(
    1,
    'replicas, each one inference-learner with its replay and actors on its own host; learners average '
    'their gradients, and numbers of actors and replay sizes are per replica; 1 with peers',
    at_least=1,
  )
  inference_nodes: int = option(
    0,
    'stand-alone inference nodes, each for an equal share of the actors; 0: the learner process infers, '
    'as it does with peers',
    at_least=0,
  )
  env_groups: int = option(
    2, "parts of an actor's environments that are stepped in turn", at_least=1
  )
  inference_batch_size: int = option(
    0,
    'largest inference batch, in environments; 0: half of the environments of a node',
  )
  inference_timeout_ms: float = option(
    2.0,
    'milliseconds that a request waits for a fuller batch',
    at_most=3_600_000.0,
    at_least=0,
  )
  inference_threads: int = option(
    0,
    'threads of an inference node that serve batches in turn; 0: one for each CPU device, or one that '
    'listens and two for each accelerator',
    at_most=256,
    at_least=0,
  )
  shared_memory: bool = option(
    True,
    'actors on the machine of their inference node send large arrays in shared memory and the rest over '
    'a Unix socket; False: everything over TCP',
  )
  one_core: bool = option(
    True, 'on CPU devices, pin the Python threads of an inference node to one core'
  )
  actor_devices: tuple[int, ...] = option((0,), 'local devices that act')
  actor_python: str = option(
    '',
    'path of the Python interpreter that plays the environment, in actors and evaluator, with its own '
    'packages; empty: that of launch.py',
  )

  @property
  def env_group_size(self) -> int:
    """Environments of an actor that are stepped together."""
    return self.envs_per_actor // self.env_groups

  @property
  def num_servers(self) -> int:
    """Nodes that serve actors: the replicas, or the inference nodes of a single learner."""
    return self.num_replicas * max(self.inference_nodes, 1)

  @property
  def actors_per_server(self) -> int:
    """Actors that each of these nodes serves."""
    return self.num_actors // max(self.inference_nodes, 1)

  @property
  def num_environments(self) -> int:
    """Training environments of the whole program."""
    return self.num_replicas * self.num_actors * self.envs_per_actor

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    half = self.actors_per_server * self.envs_per_actor // 2
    size = self.inference_batch_size or max(half, self.env_group_size)
    return dataclasses.replace(super().resolve(), inference_batch_size=size)

  def _check(self) -> None:
    self._require_devices('actor_devices')
    if self.envs_per_actor % self.env_groups:
      raise ValueError(
        f'--envs_per_actor={self.envs_per_actor} does not divide into '
        f'--env_groups={self.env_groups} equal groups; change one of them.'
      )
    if self.inference_batch_size < self.env_group_size:
      raise ValueError(
        f'--inference_batch_size={self.inference_batch_size} is smaller than one request of an '
        f'actor, {self.env_group_size} environments; make it at least that.'
      )
    served = self.actors_per_server * self.envs_per_actor + self.eval_envs
    if self.inference_batch_size > max(served, _SMALL_BATCH):
      raise ValueError(
        f'--inference_batch_size={self.inference_batch_size} is more than the {served} environments '
        'that a node serves; make it smaller, or 0 to have it chosen.'
      )
    if self.inference_nodes:
      self._validate_inference_nodes()
    num_groups = self.actors_per_server * self.env_groups
    if len(self.actor_devices) > num_groups:
      raise ValueError(
        f'--actor_devices lists {len(self.actor_devices)} devices, but only {num_groups} groups of '
        'environments use them (--num_actors times --env_groups, over --inference_nodes); '
        'use fewer devices.'
      )

  def _validate_inference_nodes(self) -> None:
    if self.num_replicas > 1:
      raise ValueError(
        f'--inference_nodes={self.inference_nodes} is for a single learner; leave it or '
        f'--num_replicas={self.num_replicas} out.'
      )
    if self.num_actors % self.inference_nodes:
      raise ValueError(
        f'--num_actors={self.num_actors} does not divide over --inference_nodes='
        f'{self.inference_nodes}; make it a multiple.'
      )
