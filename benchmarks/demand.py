"""The arithmetic of a capacity plan: what a rate of steps needs, from the costs of one step.

`demand` says what a rate needs, `shares` what many hosts have in common and how full each part is.
"""

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
    per_host: units on a host. The names of v3, v4, v5p and tpu7x count TensorCores, the others chips.
    peak: FLOP/s of a unit in bfloat16.
    cores: CPU cores of a host.
    gbits: Gbit/s of a host's network.
    interconnect: bytes/s that a chip sends to others while they reduce.
  """

  per_host: int
  peak: float
  cores: int
  gbits: float
  interconnect: float


# Google Cloud's pages of each version, read in November 2026; the network of v3 and v4 is not on them.
# The interconnect is what they call the all-reduce bandwidth of a pod, over its chips, or where they do
# not have it, half of the bidirectional bandwidth of a chip; of v3 the four links of Jouppi et al. 2023.
ACCELERATORS = {
  'v3': Accelerator(8, 61.5e12, 96, 100.0, 280e9),
  'v4': Accelerator(8, 137.5e12, 240, 100.0, 268e9),
  'v5e': Accelerator(8, 197e12, 224, 200.0, 200e9),
  'v5p': Accelerator(8, 229.5e12, 208, 200.0, 600e9),
  'v6e': Accelerator(8, 918e12, 180, 200.0, 400e9),
  'tpu7x': Accelerator(8, 1153.5e12, 224, 400.0, 600e9),
}
# Seconds from one host to the next over the interconnect. No vendor publishes it; assumed.
HOP_SECONDS = 2e-6
# Reports that the monitor takes of the nodes of one group; it asks larger groups to report less often.
REPORTS_PER_SECOND = 200.0
# Share of the published peak that small networks reach. Assumed; a profile of yours knows better.
REACHED = 0.1


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
  found = re.fullmatch(r'(\w+)-(\d+)', name)
  if not found or found[1] not in ACCELERATORS or not int(found[2]):
    known = ', '.join(f'{version}-8' for version in ACCELERATORS)
    raise ValueError(f'--accelerators={name} is unknown; use names such as {known}.')
  return ACCELERATORS[found[1]], int(found[2])


def ring_seconds(nbytes: float, hosts: int, bytes_per_second: float, hop_seconds: float) -> float:
  """Returns the seconds of an all-reduce in a ring: every host sends its part 2 (hosts - 1) times.

  Args:
    nbytes: of the array that each host has.
    hosts: in the ring; of 1 there is nothing to reduce.
    bytes_per_second: that each host sends to the next, while all of them do.
    hop_seconds: from one host to the next, beside the time of the bytes.
  """
  hops = 2 * (hosts - 1)
  return hops * (nbytes / hosts / bytes_per_second + hop_seconds)


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
  on_host = costs.inference + costs.learner + costs.replay
  needs = {
    'accelerators': units / accelerator.per_host,
    **{name: steps_per_second * need for name, need in _needs_of_host(costs, accelerator).items()},
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


@dataclasses.dataclass(frozen=True)
class Shares:
  """How full a plan makes what each host has, and what all hosts share. On paper.

  Attributes:
    steps_per_second: the rate of the plan.
    hosts: accelerator hosts.
    nodes: processes that report to the monitor.
    updates_per_second: of the learner; every update is one of all hosts.
    all_reduce_seconds: of one update.
    full: share of each resource that is in use, by its name; 1 is full. The fullest comes first.
  """

  steps_per_second: float
  hosts: int
  nodes: int
  updates_per_second: float
  all_reduce_seconds: float
  full: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Update:
  """What an update and the reports of a node cost, whatever the rate.

  Attributes:
    steps: environment steps that each host learns from in an update.
    param_bytes: of the parameters, and so of the gradient.
    report_seconds: CPU seconds of the monitor for a report.
  """

  steps: float
  param_bytes: float
  report_seconds: float


def most(costs: StepCosts, accelerator: Accelerator, units: int) -> float:
  """Returns the steps/s that all accelerators there are can carry, by what each host has."""
  hosts = math.ceil(units / accelerator.per_host)
  return 1.0 / max(_needs(costs, accelerator).values()) * hosts


def shares(
  costs: StepCosts,
  update: Update,
  steps_per_second: float,
  accelerator: Accelerator,
  units: int,
) -> Shares:
  """Returns how full a rate makes each resource, on all the accelerators that there are.

  Actors report every 2 s and learners every second, as long as the monitor takes so many.

  Args:
    costs: of one step.
    update: what an update costs.
    steps_per_second: the rate.
    accelerator: type of the hosts.
    units: of the accelerators.
  """
  hosts = math.ceil(units / accelerator.per_host)
  each = steps_per_second / hosts
  actors = hosts * math.ceil(each * costs.actor / FULL)
  updates = each / update.steps
  reduce = ring_seconds(update.param_bytes, hosts, accelerator.interconnect, HOP_SECONDS)
  reports = sum(min(rate, REPORTS_PER_SECOND) for rate in (actors / 2, hosts))
  full = {name: each * need for name, need in _needs(costs, accelerator).items()} | {
    "the all-reduce, of an update's time": updates * reduce,
    'the interpreter of the monitor': reports * update.report_seconds / FULL,
  }
  ordered = dict(sorted(full.items(), key=lambda item: -item[1]))
  return Shares(steps_per_second, hosts, actors + hosts, updates, reduce, ordered)


def _needs(costs: StepCosts, accelerator: Accelerator) -> dict[str, float]:
  """Returns the share of each resource of a host, accelerators included, that a step/s on it uses."""
  reached = REACHED * accelerator.peak * accelerator.per_host
  return _needs_of_host(costs, accelerator) | {
    f'the accelerators, at {REACHED:.0%} of their peak': costs.flops / reached
  }


def _needs_of_host(costs: StepCosts, accelerator: Accelerator) -> dict[str, float]:
  serving = costs.inference + costs.learner
  return {
    "the interpreter of a host's inference-learner": serving / FULL,
    'the cores of a host': (serving + costs.replay) / (FULL * accelerator.cores),
    'the network of a host': 8e-9 * costs.request_bytes / accelerator.gbits,
  }
