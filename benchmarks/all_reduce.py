"""Times the all-reduce between processes of this machine that form a JAX job as replicas do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

from benchmarks.demand import ring_seconds
from benchmarks.running import ROOT
from launchers import binding

_REPEATS = 40
_SMALL, _LARGE = 1 << 10, 4 << 20  # Bytes of an array: latency alone, and bandwidth.
_DEADLINE_SECONDS = 180.0


class Ring(NamedTuple):
  """The all-reduce of this machine, by the model of `demand.ring_seconds`.

  Attributes:
    bytes_per_second: from one of two processes to the other, while both send.
    hop_seconds: from one to the other, beside the time of the bytes.
    cores: of the machine. More processes than that share them, and the bandwidth with them.
  """

  bytes_per_second: float
  hop_seconds: float
  cores: int

  def seconds(self, nbytes: float, replicas: int) -> float:
    """Returns the seconds of an all-reduce of so many bytes."""
    share = min(1.0, self.cores / replicas)
    return ring_seconds(nbytes, replicas, share * self.bytes_per_second, self.hop_seconds / share)


def measure(cores: int) -> Ring:
  """Times two sizes between two processes; returns the model that they give."""
  small, large = (seconds for _, seconds in sorted(time_between(2).items()))
  hop = small / 2
  return Ring((_LARGE - _SMALL) / max(large - small, 1e-9), hop, cores)


def time_between(replicas: int) -> Mapping[int, float]:
  """Returns the median seconds of an all-reduce between so many processes, by the array's bytes."""
  coordinator = f'127.0.0.1:{binding.free_ports(1)[0]}'
  environment = {**os.environ, 'JAX_PLATFORMS': 'cpu'}
  processes = [
    subprocess.Popen(
      [sys.executable, '-m', 'benchmarks.all_reduce', coordinator, str(i), str(replicas)],
      cwd=ROOT,
      env=environment,
      stdout=subprocess.PIPE,
      text=True,
    )
    for i in range(replicas)
  ]
  try:
    outputs = [process.communicate(timeout=_DEADLINE_SECONDS)[0] for process in processes]
  finally:
    for process in processes:
      process.kill()
      process.wait()
  if any(process.returncode for process in processes):
    raise RuntimeError('a process of the all-reduce failed; its traceback is above.')
  return {int(size): s for size, s in json.loads(outputs[0].splitlines()[-1]).items()}


def _main() -> None:
  """One of the processes: takes part in every all-reduce; prints its median seconds, by bytes."""
  import jax
  import jax.numpy as jnp
  import numpy as np

  from nodes.learning import replicas
  from nodes.learning.replica_sync import ReplicaSync

  coordinator, index, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
  replicas.initialize(coordinator, index, count)
  devices = replicas.devices_of_all((0,), '--learner_devices')
  replicas.warm_up_collectives(devices)
  sync = ReplicaSync(devices)
  total = jax.jit(lambda x: jnp.sum(x, 0), out_shardings=sync.replicated)
  medians = {}
  for size in (_SMALL, _LARGE):
    rows = sync.to_global(np.ones((1, size // 4), np.float32))
    jax.block_until_ready(total(rows))
    taken = []
    for _ in range(_REPEATS):
      started = time.perf_counter()
      jax.block_until_ready(total(rows))
      taken.append(time.perf_counter() - started)
    medians[size] = float(np.median(taken))
  print(json.dumps(medians), flush=True)


if __name__ == '__main__':
  _main()
