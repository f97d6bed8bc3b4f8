"""The config of programs with central inference."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from environments import registry
from nodes.inference.options import GroupedActingOptions, InferenceOptions
from programs.options.actors import ActorsConfig

C = TypeVar('C', bound='InferenceConfig')
_SMALL_BATCH = 1024  # Memory for batches of up to so many is allocated without question.


@dataclasses.dataclass(frozen=True)
class InferenceConfig(ActorsConfig):
  """What programs with central inference have, whatever their agent and their replay.

  Attributes:
    acting: the actors.
    inference: the nodes that infer for them.
  """

  acting: GroupedActingOptions = GroupedActingOptions()
  inference: InferenceOptions = InferenceOptions()

  @property
  def num_replicas(self) -> int:
    """Replicas, each one inference-learner with its replay and actors."""
    return self.inference.num_replicas

  @property
  def forms_one_job(self) -> bool:
    """Whether the inference-learners are several replicas of one JAX job."""
    return self.num_replicas > 1

  @property
  def num_servers(self) -> int:
    """Nodes that serve actors: the replicas, or the inference nodes of a single learner."""
    return self.num_replicas * max(self.inference.inference_nodes, 1)

  @property
  def actors_per_server(self) -> int:
    """Actors that each of these nodes serves."""
    return self.acting.num_actors // max(self.inference.inference_nodes, 1)

  @property
  def threads_per_server(self) -> int:
    """Actors that are threads of each of these nodes."""
    return self.actors_per_server if self.acting.actors_as_threads else 0

  @property
  def num_environments(self) -> int:
    """Training environments of the whole program."""
    return self.num_replicas * self.acting.num_environments

  def resolve(self: C) -> C:
    """Returns the config with every 'choose for me' replaced by the choice."""
    groups = self.acting.env_groups or self._best_env_groups()
    acting = dataclasses.replace(self.acting, env_groups=groups)
    half = self.actors_per_server * acting.envs_per_actor // 2
    size = self.inference.inference_batch_size or max(half, acting.env_group_size)
    inference = dataclasses.replace(self.inference, inference_batch_size=size)
    chosen = dataclasses.replace(self, acting=acting, inference=inference)
    return super(InferenceConfig, chosen).resolve()

  def _best_env_groups(self) -> int:
    # A second group keeps an actor busy while the first waits for its actions, and costs a message more.
    quick = self.run.env.partition(':')[0] in registry.quick_families()
    alone = quick or self.acting.actors_as_threads or self.acting.envs_per_actor % 2
    return 1 if alone else 2

  def _check(self) -> None:
    acting, inference = self.acting, self.inference
    if acting.actors_as_threads and acting.actor_python:
      raise ValueError(
        f'--actor_python={acting.actor_python} is another interpreter than that of the process of which '
        '--actors_as_threads makes the actors threads; leave one of them out.'
      )
    if acting.envs_per_actor % acting.env_groups:
      raise ValueError(
        f'--envs_per_actor={acting.envs_per_actor} does not divide into '
        f'--env_groups={acting.env_groups} equal groups; change one of them.'
      )
    if inference.inference_batch_size < acting.env_group_size:
      raise ValueError(
        f'--inference_batch_size={inference.inference_batch_size} is smaller than one request of an '
        f'actor, {acting.env_group_size} environments; make it at least that.'
      )
    served = self.actors_per_server * acting.envs_per_actor + self.evaluation.eval_envs
    if inference.inference_batch_size > max(served, _SMALL_BATCH):
      raise ValueError(
        f'--inference_batch_size={inference.inference_batch_size} is more than the {served} '
        'environments that a node serves; make it smaller, or 0 to have it chosen.'
      )
    if inference.inference_nodes:
      self._check_inference_nodes()
    num_groups = self.actors_per_server * acting.env_groups
    if len(inference.actor_devices) > num_groups:
      raise ValueError(
        f'--actor_devices lists {len(inference.actor_devices)} devices, but only {num_groups} groups of '
        'environments use them (--num_actors times --env_groups, over --inference_nodes); '
        'use fewer devices.'
      )

  def _check_inference_nodes(self) -> None:
    nodes, actors = self.inference.inference_nodes, self.acting.num_actors
    if self.num_replicas > 1:
      raise ValueError(
        f'--inference_nodes={nodes} is for a single learner; leave it or '
        f'--num_replicas={self.num_replicas} out.'
      )
    if actors % nodes:
      raise ValueError(
        f'--num_actors={actors} does not divide over --inference_nodes={nodes}; make it a multiple.'
      )
