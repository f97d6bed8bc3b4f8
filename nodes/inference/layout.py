"""Which streams of environments a program has, and how its environments are numbered."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class EnvGroupSpec:
  """A batch of environments of one actor that move in lockstep and ask together.

  Attributes:
    actor_id: the name of the process behind it, such as 'actor/3'.
    group: which of that actor's environment groups.
    num_envs: environments in the stream.
    first_environment_id: the stream's environments are numbered from here.
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
) -> list[EnvGroupSpec]:
  """Returns the streams of a program, or of one replica: those of its actors, then the evaluator's.

  Training environments are numbered from 0 without gaps, in the order of actors and groups. Of
  several replicas, actor i asks replica `i % num_replicas`, so that each has environments from all of
  the range over which exploration varies. The evaluator asks the first.

  Args:
    num_actors: of each replica.
    envs_per_actor: environments of each actor.
    env_groups: groups into which an actor's environments are split.
    eval_envs: environments of the evaluator, 0 for none.
    replica: whose streams to return.
    num_replicas: in the program.
  """
  size = envs_per_actor // env_groups
  streams = [
    EnvGroupSpec(f'actor/{actor}', group, size, actor * envs_per_actor + group * size)
    for actor in range(replica, num_replicas * num_actors, num_replicas)
    for group in range(env_groups)
  ]
  if eval_envs and replica == 0:
    first = num_replicas * num_actors * envs_per_actor
    streams.append(EnvGroupSpec('evaluator/0', 0, eval_envs, first, training=False))
  return streams
