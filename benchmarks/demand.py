"""The arithmetic of a capacity plan: what a rate of steps needs, from the costs of one step."""

from __future__ import annotations

import dataclasses
import math
import re

# A process whose interpreter is busy for longer makes others wait; it counts as full.
FULL = 0.8


@dataclasses.dataclass(frozen=True)
class Accelerator:
  """A type of accelerator host, by the figures of its vendor.

  Attributes:
    per_host: units on a host. The names of v3, v4 and v5p count TensorCores, the others count chips.
    peak: FLOP/s of a unit in bfloat16.
    cores: CPU cores of a host.
    gbits: Gbit/s of a host's network.
  """

  per_host: int
  peak: float
  cores: int
  gbits: float


# Google Cloud's pages of each version, read in November 2026; the network of v3 and v4 is not on them.
ACCELERATORS = {
  'v3': Accelerator(8, 61.5e12, 96, 100.0),
  'v4': Accelerator(8, 137.5e12, 240, 100.0),
  'v5e': Accelerator(8, 197e12, 224, 200.0),
  'v5p': Accelerator(8, 229.5e12, 208, 200.0),
  'v6e': Accelerator(8, 918e12, 180, 200.0),
}


@dataclasses.dataclass(frozen=True)
class StepCosts:
  """What one step of one environment costs.

  Attributes:
    actor: CPU seconds in the actor.
    inference: CPU seconds of the host in inference: requests, batches, unrolls, writing.
    learner: CPU seconds of the host in the learner: sampling, updates.
    replay: CPU seconds in replay.
    flops: floating-point operations on the accelerator, acting and learning.
    request_bytes: between actor and inference, both ways.
    unroll_bytes: a step's share of an unroll.
  """

  actor: float
  inference: float
  learner: float
  replay: float
  flops: float
  request_bytes: float
  unroll_bytes: float


@dataclasses.dataclass(frozen=True)
class Demand:
  """What a rate needs. Numbers of nodes are over the whole program.

  Attributes:
    steps_per_second: the rate.
    hosts: accelerator hosts, which are the program's replicas.
    limit: what decides the number of hosts, in words.
    actors: actor processes.
    actor_cores: CPU cores that they keep busy.
    host_cores: CPU cores that inference, learner and replay keep busy, on each host.
    replay_shards: Reverb servers of each host.
    peak_share: share of the accelerators' published peak that the computation needs.
    gbits: Gbit/s into and out of each host, between actors and inference.
    unrolls_gbits: Gbit/s of unrolls within each host, into replay and out of it.
  """

  steps_per_second: float
  hosts: int
  limit: str
  actors: int
  actor_cores: float
  host_cores: float
  replay_shards: int
  peak_share: float
  gbits: float
  unrolls_gbits: float


def parse(name: str) -> tuple[Accelerator, int]:
  """Returns the type and the number of units of a name such as v5e-8.

  Raises:
    ValueError: the name is unknown; one sentence.
  """
  found = re.fullmatch(r'(v\d+[ep]?)-(\d+)', name)
  if not found or found[1] not in ACCELERATORS or not int(found[2]):
    known = ', '.join(f'{version}-8' for version in ACCELERATORS)
    raise ValueError(f'--accelerators={name} is unknown; use names such as {known}.')
  return ACCELERATORS[found[1]], int(found[2])


def demand(
  costs: StepCosts, steps_per_second: float, accelerator: Accelerator, units: int
) -> Demand:
  """Returns what a rate needs.

  A replica has one process for inference and learning (`--num_replicas`), so its interpreter, the
  cores of its host and its network limit its share of the rate.

  Args:
    costs: of one step.
    steps_per_second: the rate.
    accelerator: type of the hosts.
    units: of the accelerators that there are.
  """
  serving = costs.inference + costs.learner
  on_host = serving + costs.replay
  needs = {
    'accelerators': units / accelerator.per_host,
    "the interpreter of a host's inference-learner": steps_per_second * serving / FULL,
    'the cores of a host': steps_per_second * on_host / (FULL * accelerator.cores),
    'the network of a host': steps_per_second * 8 * costs.request_bytes / (1e9 * accelerator.gbits),
  }
  limit = max(needs, key=lambda name: needs[name])
  hosts = max(1, math.ceil(needs[limit]))
  share = steps_per_second / hosts
  return Demand(
    steps_per_second=steps_per_second,
    hosts=hosts,
    limit=limit,
    actors=hosts * math.ceil(share * costs.actor / FULL),
    actor_cores=steps_per_second * costs.actor,
    host_cores=share * on_host,
    replay_shards=math.ceil(share * costs.replay / FULL),
    peak_share=steps_per_second * costs.flops / (units * accelerator.peak),
    gbits=8e-9 * share * costs.request_bytes,
    unrolls_gbits=8e-9 * share * 2 * costs.unroll_bytes,
  )
