"""Predicts the rate of a program on this machine, from the costs of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import roles
from benchmarks.all_reduce import Ring
from benchmarks.demand import FULL

# Milliseconds for which a stage waits before each call, about as long as in a small program.
PAUSE_MS = 1.0
# CPU seconds that a program uses for each inference batch beyond its stages: threads wake each other,
# and its loops, counters and reports are in no stage. README.md says how it was measured.
BATCH_OVERHEAD = 340e-6
# All-reduces of an update: of the gradient with the metrics, of the largest policy lag, of actor steps.
_ALL_REDUCES = 3
# Share of the cores that must be left to a program while it is measured.
QUIET = 0.9


class Prediction(NamedTuple):
  """The rate of a program on some cores.

  Attributes:
    steps_per_second: the rate.
    limit: what limits it, in words.
    cpu: CPU seconds of a step, over all nodes, `BATCH_OVERHEAD` included.
    interpreter: of these, seconds of the interpreter that is used most.
  """

  steps_per_second: float
  limit: str
  cpu: float
  interpreter: float


def mean(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """Returns the mean costs of several measurements of the same stages."""
  share = 1 / len(measured)
  stages: dict[str, Any] = {}
  for name, first in measured[0].items():
    each = [costs[name] for costs in measured]
    stages[name] = {
      'cpu': {node: share * sum(cost['cpu'][node] for cost in each) for node in first['cpu']},
      'python': share * sum(cost['python'] for cost in each),
    }
  return stages


def overhead(config: Any) -> float:
  """Returns the CPU seconds of a step beyond its stages: its share of those of an inference batch."""
  return BATCH_OVERHEAD / config.inference.inference_batch_size


def cores_left(whole: Mapping[str, Any], machine: int) -> float:
  """Returns the cores that other processes left to a program while it was measured.

  Args:
    whole: as `end_to_end.measure` returns it.
    machine: cores of the machine.
  """
  own = sum(group['busy'] for group in whole['groups'].values())
  return min(machine, machine * (1 - whole['machine_busy_share']) + own)


def predict(stages: Mapping[str, Any], config: Any, cores: float) -> Prediction:
  """Returns the rate that the cores or an interpreter allow, whichever is less.

  Processes wait for each other, so they use `demand.FULL` of the cores, and an interpreter can be busy
  all the time. Python's threads of a node use one core (`--one_core`); XLA's and Reverb's use the others
  too.

  Args:
    stages: costs of a step by stage, as `benchmarks.stages` prints them.
    config: resolved options of a program with central inference.
    cores: that the program can have.
  """
  infers, learns = roles.infers(config), roles.learns(config)
  python = dict.fromkeys((infers, learns), 0.0)
  for name, cost in stages.items():
    if name == 'rpc':  # The process that measures is the actor; the server is Python alone.
      python[infers] += cost['cpu'][infers]
    elif name in ('inference', 'assembling', 'insert'):
      python[infers] += cost['python']
    elif name in ('sample', 'update'):
      python[learns] += cost['python']
  python[infers] += overhead(config)
  cpu = overhead(config) + sum(sum(cost['cpu'].values()) for cost in stages.values())
  busiest = max(python, key=lambda node: python[node])
  limits = {
    'the cores': FULL * cores / cpu,
    f'the interpreter of the {busiest.replace("_", "-")}': 1 / python[busiest],
  }
  limit = min(limits, key=lambda name: limits[name])
  return Prediction(limits[limit], limit, cpu, python[busiest])


def predict_replicas(
  stages: Mapping[str, Any], config: Any, cores: float, ring: Ring, param_bytes: float
) -> Prediction:
  """Returns the rate of `--num_replicas` replicas whose computation is simulated, on one machine.

  What an accelerator computes takes its time and no core, so several replicas share only the cores. An
  update is as long as the slowest part of it: the computation, then the all-reduce over all replicas.

  Args:
    stages: costs of a step of one replica, as `benchmarks.stages` prints them, waits included.
    config: resolved options of `benchmarks/simulated`.
    cores: that the program can have.
    ring: the all-reduce of this machine.
    param_bytes: of the parameters.
  """
  replicas = config.num_replicas
  alone = predict(stages, config, cores / replicas)
  steps = config.replay.batch_size * config.agent.unroll_length
  reduced = ring.seconds(param_bytes, replicas) + (_ALL_REDUCES - 1) * ring.seconds(0, replicas)
  update = steps * stages['update']['wall'] + reduced
  limits = {
    alone.limit: alone.steps_per_second,
    'the accelerators that act': 1 / stages['inference']['wall'],
    'the accelerators that learn': steps / update,
  }
  limit = min(limits, key=lambda name: limits[name])
  return alone._replace(steps_per_second=replicas * limits[limit], limit=limit)
