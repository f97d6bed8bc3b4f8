"""Drill: replicas of one learner are killed and stopped; all of them restart, and the run ends well.

Four replicas of Sebulba on Catch form one JAX job, whose coordinator is in the first one. Ten times, one
of them gets SIGKILL or SIGSTOP, which the launcher notices by its missing heartbeats. The first one gets
both. Each time all four restart from the newest checkpoint, and no other node does.
"""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator

from benchmarks.drills import unrolls
from benchmarks.drills.checks import Checks
from benchmarks.running import RunningProgram, processes

_REPLICAS = 4
_FAILURES = 10
_LEARNED = 0.5  # Mean return on Catch; that of a random policy is about -0.6.
_DONE = re.compile(r'done: evaluator_return=(\S+) ')
_FLAGS = (
  f'--num_replicas={_REPLICAS}',
  '--num_actors=1',
  '--envs_per_actor=16',
  '--batch_size=8',
  '--num_steps=600000',
  '--checkpoint_period=2',
  '--node_timeout=15',
  '--eval_period=50000',
  '--audit',
)


def failures(seed: int) -> Iterator[tuple[str, signal.Signals]]:
  """Yields the replicas that fail, and the signals that they get."""
  yield 'inference_learner-0', signal.SIGKILL
  yield 'inference_learner-0', signal.SIGSTOP
  rng = random.Random(seed)
  for _ in range(_FAILURES - 2):
    number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
    yield f'inference_learner-{rng.randrange(_REPLICAS)}', number


def restart_together(directory: str, checks: Checks, seed: int = 1) -> None:
  """Does the drill.

  Args:
    directory: an existing directory.
    checks: collects the results.
    seed: of the choice of replicas and signals.
  """
  run_dir = os.path.join(directory, 'run')
  program = RunningProgram(run_dir, *_FLAGS, f'--run_dir={run_dir}', deadline=300.0)
  replicas = {f'inference_learner-{i}' for i in range(_REPLICAS)}
  try:
    program.wait_for_progress()
    program.wait_until(program.checkpoint_counts, 'a checkpoint')
    for name, number in failures(seed):
      before = {node: process.pid for node, process in program.nodes().items()}
      program.nodes()[name].send_signal(number)
      program.wait_until(
        lambda b=before: replicas <= _replaced(program, b),  # type: ignore[misc]
        'all replicas have restarted',
      )
      program.wait_for_progress()
      restarted = _replaced(program, before)
      checks.add(
        restarted == replicas, f'{number.name} to {name}: all replicas restart, and nothing else'
      )
    code, output, errors = program.end()
  finally:
    program.kill()
  done = _DONE.search(output)
  learned = float(done[1]) if done else -1.0
  checks.add(code == 0, f'the run ends with exit code 0 ({code})')
  checks.add(learned > _LEARNED, f'it has learned: evaluator_return is {learned:.2f}')
  counted = len(re.findall(f'; restarting all {_REPLICAS} nodes of its job', errors))
  checks.add(counted == _FAILURES, f'each of {_FAILURES} failures counts once ({counted})')
  account = unrolls.account(run_dir, kills=0)
  wrong = {n: account[n] for n in ('unaccounted', 'trained_twice', 'foreign') if account[n]}
  checks.add(not wrong, f'no unroll is unaccounted for (but: {wrong})')
  checks.add(not processes(run_dir), 'no process is left')


def _replaced(program: RunningProgram, before: dict[str, int]) -> set[str]:
  """Returns the nodes that have other processes than before."""
  return {n for n, p in program.nodes().items() if before.get(n, p.pid) != p.pid}
