"""Options of actors and inference. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses

from agents.options import CheckedOptions, option, require_devices


@dataclasses.dataclass(frozen=True)
class ActingOptions(CheckedOptions):
  """The actors, whose environments are stepped together."""

  num_actors: int = option(2, 'actors of each replica', at_most=65_536, at_least=1)
  envs_per_actor: int = option(32, 'environments in each actor', at_least=1)

  @property
  def env_group_size(self) -> int:
    """Environments of an actor that are stepped together, whose unrolls are written together."""
    return self.envs_per_actor

  @property
  def num_environments(self) -> int:
    """Training environments of a replica."""
    return self.num_actors * self.envs_per_actor


@dataclasses.dataclass(frozen=True)
class GroupedActingOptions(ActingOptions):
  """The actors, whose groups of environments are stepped in turn while the others wait for actions."""

  env_groups: int = option(
    0,
    "parts of an actor's environments that are stepped in turn; 0: two, or one if a step takes no "
    'longer than a message (catch, cartpole, minatar, bsuite, recall), or with actors_as_threads',
    at_least=0,
  )
  actors_as_threads: bool = option(
    False,
    'actors are threads of the process that infers for them, as in Podracer, and no processes; for '
    "environments that are vectorised or leave Python's interpreter lock, which all threads share",
  )
  actor_python: str = option(
    '',
    'path of the Python interpreter that plays the environment, in actors and evaluator, with its own '
    'packages; empty: that of launch.py',
  )

  @property
  def env_group_size(self) -> int:
    """Environments of an actor that are stepped together, whose unrolls are written together."""
    return self.envs_per_actor // max(self.env_groups, 1)  # 0: not chosen yet.


@dataclasses.dataclass(frozen=True)
class InferenceOptions(CheckedOptions):
  """Central inference: the nodes that serve actors, and what each of them does with requests."""

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

  def _check(self) -> None:
    require_devices('actor_devices', self.actor_devices)
