"""What an inference server serves, as the graph decides it. Imports no JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agents.seeding import Seed
from environments.base import BatchedEnvironment
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.options import InferenceOptions
from nodes.unrolls.options import UnrollSinks


class ActorThread(NamedTuple):
  """An actor that is a thread of the process that infers for it.

  Attributes:
    make_environment: takes (number of environments, seed).
    actor_id: such as 'actor/3'.
    num_envs: environments of this actor.
    env_groups: number of groups into which they are split.
    seed: different for each actor.
  """

  make_environment: Callable[[int, int], BatchedEnvironment]
  actor_id: str
  num_envs: int
  env_groups: int
  seed: Seed


class Serving(NamedTuple):
  """Everything that a node needs in order to act, wherever its parameters come from.

  Attributes:
    env_groups: the environment groups to serve.
    options: of inference.
    seed: of action sampling; each server has a different one.
    num_environments: training environments of the whole program.
    sinks: where the unrolls are written.
    observers: clients of nodes that observe the unrolls. See `nodes.unrolls.observers`.
    actors: those that are threads of this process; the others connect to it.
  """

  env_groups: Sequence[EnvGroupSpec]
  options: InferenceOptions
  seed: Seed
  num_environments: int
  sinks: UnrollSinks = UnrollSinks()
  observers: Sequence[Any] = ()
  actors: Sequence[ActorThread] = ()


def one_group(
  env_group: EnvGroupSpec, seed: Seed, num_environments: int, sinks: UnrollSinks | None = None
) -> Serving:
  """Returns what a server for a single group of its own process serves; arguments as in `Serving`."""
  # A batch is the group's own request, so it never waits for others.
  options = InferenceOptions(
    inference_batch_size=env_group.num_envs, inference_timeout_ms=0.0, one_core=False
  )
  return Serving((env_group,), options, seed, num_environments, sinks or UnrollSinks())
