"""The environment groups of a program and the numbering of its environments."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvGroupSpec:
  """A batch of one actor's environments that step in lockstep and share requests.

  Attributes:
    actor_id: name of the actor process, such as 'actor/3'.
    group: index among that actor's environment groups.
    num_envs: environments in the group.
    first_environment_id: id of the group's first environment; the others follow consecutively.
    training: whether its rows are trained on; False for an evaluator.
  """

  actor_id: str
  group: int
  num_envs: int
  first_environment_id: int
  training: bool = True


def layout(
  num_actors: int,
  envs_per_actor: int,
  env_groups: int,
  eval_envs: int = 0,
  replica: int = 0,
  num_replicas: int = 1,
  actors: str = 'actor',
  evaluators: str = 'evaluator',
) -> list[EnvGroupSpec]:
  """Returns the environment groups of one replica: those of its actors, then the evaluator's.

  Training environments are numbered from 0 without gaps, in the order of actors and groups. Actor i
  uses replica `i % num_replicas`, so that each replica covers the whole range of exploration. The
  evaluator uses the first replica.

  Args:
    num_actors: actors per replica.
    envs_per_actor: environments per actor.
    env_groups: groups into which an actor's environments are split.
    eval_envs: environments of the evaluator; 0 for none.
    replica: index of the replica.
    num_replicas: in the program.
    actors: name of the actors' group of nodes.
    evaluators: name of the evaluator's group of nodes.
  """
  size = envs_per_actor // env_groups
  specs = [
    EnvGroupSpec(f'{actors}/{actor}', group, size, actor * envs_per_actor + group * size)
    for actor in range(replica, num_replicas * num_actors, num_replicas)
    for group in range(env_groups)
  ]
  if eval_envs and replica == 0:
    first = num_replicas * num_actors * envs_per_actor
    specs.append(EnvGroupSpec(f'{evaluators}/0', 0, eval_envs, first, training=False))
  return specs
