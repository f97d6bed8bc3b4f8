"""Chooses the numbers of environments and of rows in an inference batch from what they cost.

More environments in an actor share the cost of a request and of the environments' own overhead. More
rows in a batch share that of a call of the compiled function. The smallest size is chosen that acts at
nearly the best rate: data then are as fresh as they can be.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from nodes.runtime.timing import Cost

# Times the environments that an actor has by its preset or default, which learn: more of them make data
# more stale, since a batch keeps its size.
MOST = 4
# Share of the best rate with which a size is good enough.
ENOUGH = 0.9
# Seconds of a step of a group, its request and its batch, from which on more rows are not tried: what a
# request costs is a hundredth of it.
LONG = 0.1


@dataclasses.dataclass(frozen=True)
class Size:
  """A size to try.

  Attributes:
    envs_per_actor: environments of an actor.
    inference_batch_size: the largest batch, in environments.
    num_envs: environments of a request.
    num_requests: in a full batch.
  """

  envs_per_actor: int
  inference_batch_size: int
  num_envs: int
  num_requests: int


class Costs(Protocol):
  """What calls cost on this machine."""

  def environment(self, num_envs: int) -> Cost:
    """Returns the cost of one step of `num_envs` environments."""

  def request(self, num_envs: int) -> Cost:
    """Returns the cost of their request and its reply, client and server together."""

  def inference(self, num_requests: int, num_envs: int) -> Cost:
    """Returns the cost of a batch of such requests; of nothing if the batch runs elsewhere."""


@dataclasses.dataclass(frozen=True)
class Machine:
  """What one server and its actors have.

  Attributes:
    cores: CPU cores, over all of them.
    actors: actor processes.
    apart: whether a process of its own infers for the actors; False if each actor does.
  """

  cores: float
  actors: int
  apart: bool


@dataclasses.dataclass(frozen=True)
class Acting:
  """What acting costs with a size.

  Attributes:
    size: the size.
    environment, request, inference: CPU seconds of a step.
    batch: wall-clock seconds of an inference batch.
    cycle: wall-clock seconds of a step of a group, its request and its batch.
    rate: steps/s that the machine can act, without learning.
  """

  size: Size
  environment: float
  request: float
  inference: float
  batch: float
  cycle: float
  rate: float

  @property
  def cpu(self) -> float:
    """CPU seconds of a step."""
    return self.environment + self.request + self.inference


def acting(size: Size, costs: Costs, machine: Machine) -> Acting:
  """Returns what acting costs with a size.

  The rate is what the cores, the actors or the server allow, whichever is least.
  """
  n = size.num_envs
  calls = (
    (costs.environment(n), n),
    (costs.request(n), n),
    (costs.inference(size.num_requests, n), n * size.num_requests),
  )
  cpu = [call.cpu / rows for call, rows in calls]
  environment, request, inference = (call.wall / rows for call, rows in calls)
  # Half of a request is the server's.
  server = request / 2 + inference if machine.apart else 0.0
  actor = environment + request + inference - server
  return Acting(
    size,
    cpu[0],
    cpu[1],
    cpu[2],
    batch=calls[2][0].wall,
    cycle=sum(call.wall for call, _ in calls),
    rate=1 / max(sum(cpu) / machine.cores, actor / machine.actors, server),
  )


def smallest(tried: Sequence[Acting]) -> Acting:
  """Returns the first of some sizes, in ascending order, that acts at nearly the best rate."""
  best = max(each.rate for each in tried)
  return next(each for each in tried if each.rate >= ENOUGH * best)


def choose(
  sizes: Mapping[int, Sequence[Size]], costs: Costs, machine: Machine
) -> tuple[Acting, list[Acting], list[Acting]]:
  """Chooses a size; costs are asked for only as far as sizes are worth trying.

  Args:
    sizes: by environments of an actor, ascending: what to try with them, by batch size, ascending.
    costs: of calls.
    machine: what there is.

  Returns:
    The choice; the best batch size for each number of environments that was tried; every batch size
    tried with the chosen number.
  """
  bests: list[Acting] = []
  batches: dict[int, list[Acting]] = {}
  for envs, each in sizes.items():
    batches[envs] = list(_tried(each, costs, machine))
    bests.append(smallest(batches[envs]))
    if bests[-1].cycle > LONG:
      break
  chosen = smallest(bests)
  return chosen, bests, batches[chosen.size.envs_per_actor]


def _tried(sizes: Iterable[Size], costs: Costs, machine: Machine) -> Iterator[Acting]:
  last = -math.inf
  for size in sizes:
    if last > LONG:
      return
    tried = acting(size, costs, machine)
    last = tried.batch
    yield tried
