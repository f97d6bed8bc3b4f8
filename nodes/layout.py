"""Which streams of environments a program has, and how its environments are numbered."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class StreamSpec:
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
  num_actors: int, envs_per_actor: int, env_groups: int, eval_envs: int = 0
) -> list[StreamSpec]:
  """Returns the streams of a program: those of all actors, then the evaluator's.

  Training environments are numbered from 0 without gaps, in the order of actors and groups.
  """
  size = envs_per_actor // env_groups
  streams = [
    StreamSpec(f'actor/{actor}', group, size, actor * envs_per_actor + group * size)
    for actor in range(num_actors)
    for group in range(env_groups)
  ]
  if eval_envs:
    first = num_actors * envs_per_actor
    streams.append(StreamSpec('evaluator/0', 0, eval_envs, first, training=False))
  return streams
