"""Measures a program under launch.py for some seconds after warm-up: rates, CPU time, memory."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from agents import options
from benchmarks import costs, roles
from benchmarks.running import RunningProgram
from rundir import curves, node_files

_COMPILED = re.compile(r'Finished XLA compilation of (\S+) in ([0-9.e-]+) sec')
# For each wait before the end of the measurement.
_DEADLINE_SECONDS = 600.0
_FIRST_STEPS = 3
# Report columns of how a node spends its time, with their labels.
_SHARES = {
  'stepping_share': 'steps environments',
  'waiting_share': 'waiting for actions',
  'learner_waiting_share': 'learner waits for unrolls',
}
# Report columns of inference nodes that a result has unchanged, as means over the window.
_REPORTED = ('inference_batch_rows', 'inference_batch_fill', 'inference_latency_ms')


@contextlib.contextmanager
def running(flags: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[RunningProgram]:
  """Runs a program, without evaluator and without end, in a temporary directory.

  Args:
    flags: flags for launch.py, by name.
    environment: variables to set for the program.
  """
  with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
    run_dir = os.path.join(directory, 'run')
    forced = {'run_dir': run_dir, 'num_steps': str(1 << 40), 'eval_envs': '0'}
    arguments = [f'--{name}={value}' for name, value in {**flags, **forced}.items()]
    program = RunningProgram(
      run_dir, *arguments, deadline=_DEADLINE_SECONDS, environment=environment
    )
    try:
      yield program
    finally:
      program.kill()


def compilations(run_dir: str) -> list[tuple[str, float]]:
  """Returns the names that XLA compiled in inference and learner nodes, with the seconds of each.

  Requires a program that runs with JAX_LOG_COMPILES=1.
  """
  logs = map(pathlib.Path, node_files.find(run_dir, node_files.LOG).values())
  found = [match for log in logs for match in _COMPILED.findall(log.read_text(errors='replace'))]
  return [(name, float(seconds)) for name, seconds in found]


def all_nodes(program: RunningProgram) -> dict[str, psutil.Process]:
  """Waits until all nodes have a process; returns the processes by name, 'launcher' included."""
  names = {path.stem for path in pathlib.Path(program.run_dir, 'nodes').glob('*.pkl')}
  nodes = program.wait_until(
    lambda: found if (found := program.nodes()).keys() >= names else {}, 'all nodes run'
  )
  return nodes | {'launcher': psutil.Process(program.launcher.pid)}


def wait_until_warm(program: RunningProgram, seconds: float) -> float:
  """Waits for the first learner steps and `seconds` more; returns when the first was, by the clock."""
  program.wait_until(lambda: program.learner_steps() > 0, 'the first learner step')
  first_step = time.monotonic()
  program.wait_until(lambda: program.learner_steps() >= _FIRST_STEPS, 'learner steps')
  warm = time.monotonic() + seconds
  program.wait_until(lambda: time.monotonic() >= warm, 'the end of warm-up')
  return first_step


def processes(nodes: Mapping[str, psutil.Process]) -> dict[str, list[psutil.Process]]:
  """Returns the processes of each node, those that it has started included."""
  return {name: [p] if name == 'launcher' else costs.family(p) for name, p in nodes.items()}


def group_of(node: str) -> str:
  """Returns the group of a node such as 'actor-0'."""
  return re.sub(r'-\d+$', '', node)


class Instant:
  """Resources that a program's nodes have used so far, read just after a report of the learner.

  Attributes:
    second: of the run, by the learner.
    counts: 'actor_steps', 'environment_frames' and 'learner_steps' by then.
  """

  def __init__(self, program: RunningProgram, learner: str, nodes: Mapping[str, psutil.Process]):
    last = _reported_second(program, learner)
    self.second = program.wait_until(
      lambda: now if (now := _reported_second(program, learner)) > last else 0.0, 'a report'
    )
    self.clock = time.monotonic()
    machine = psutil.cpu_times()
    self.machine_idle = machine.idle + machine.iowait
    self.machine_total = sum(machine[:8])
    parts = processes(nodes)
    self.cpu = {name: sum(map(costs.cpu_seconds, found)) for name, found in parts.items()}
    self.memory = {
      name: sum(p.memory_full_info().uss for p in found) for name, found in parts.items()
    }
    self.compilations = compilations(program.run_dir)
    self.counts = _counts(program, learner, self.second)


def _reported_second(program: RunningProgram, learner: str) -> float:
  rows = curves.read(program.run_dir, learner, 'seconds', 'learner_steps')
  return rows[-1][0] if rows else 0.0


def _counts(program: RunningProgram, learner: str, second: float) -> dict[str, float]:
  names = ('actor_steps', 'environment_frames', 'learner_steps')
  rows = curves.read(program.run_dir, learner, 'seconds', *names)
  values = next(row for row in rows if row[0] == second)[1:]
  return dict(zip(names, values, strict=True))


def measure(
  flags: Mapping[str, str],
  config: Any,
  seconds: float,
  warm_up: float,
  environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
  """Launches a program and measures it.

  Args:
    flags: flags for launch.py, by name.
    config: the resolved options.
    seconds: length of the measurement.
    warm_up: seconds between the first learner steps and the measurement.
    environment: variables to set for the program.

  Returns:
    See `_summary`, and:
    seconds_to_first_learner_step: from the command until the learner reports one.
    seconds: measured seconds.

  Raises:
    AssertionError: XLA compiled something after warm-up, or the program ended.
  """
  started = time.monotonic()
  with running(flags, {'JAX_LOG_COMPILES': '1', **(environment or {})}) as program:
    first_step = wait_until_warm(program, warm_up) - started
    nodes = all_nodes(program)
    learner = f'{roles.learns(config)}/0'
    begin = Instant(program, learner, nodes)
    end_clock = begin.clock + seconds
    program.wait_until(lambda: time.monotonic() >= end_clock, 'the end of the measurement')
    end = Instant(program, learner, nodes)
    later = [found for found in end.compilations if found not in begin.compilations]
    assert not later, f'compiled after warm-up: {later}'
    return _summary(program, config, begin, end) | {
      'seconds_to_first_learner_step': first_step,
      'seconds': end.second - begin.second,
    }


def _summary(program: RunningProgram, config: Any, begin: Instant, end: Instant) -> dict[str, Any]:
  """Returns the measurements between two instants.

  steps_per_second: rows of environments, as stages count them: decisions and, once an episode, a
    reset. actor_steps_per_second counts the decisions alone.
  learned_steps_per_second: the steps/s that the learner's updates consume. Below steps_per_second if
    the window is so short that actors are still ahead of the learner, as far as replay allows.
  nodes, groups: by name, `busy` (cores), `cpu_per_step` (seconds), `memory` (own bytes), and the
    reported `shares` of time.
  """
  seconds = end.second - begin.second
  actor_steps, frames, learner_steps = (
    (end.counts[name] - begin.counts[name]) / seconds for name in end.counts
  )
  columns = ('inference_batches_per_second', *_REPORTED, 'actor_steps_per_second')
  reports = [
    row
    for i in range(config.num_servers)
    for row in _window(program, f'{roles.infers(config)}/{i}', begin, end, *columns)
  ]
  assert reports, 'nothing was reported within the measurement; measure for longer'
  rows = sum(batches * size for batches, size, *_ in reports)
  # Reports give the rows of batches as means, but the decisions of the window exactly.
  steps = actor_steps * rows / max(sum(report[-1] for report in reports), 1e-9)
  inserted = options.value(config, 'samples_per_insert', 1.0)
  unrolls_per_update = config.num_replicas * config.replay.batch_size
  steps_per_update = unrolls_per_update * config.agent.unroll_length / inserted
  nodes = {
    name: {
      'busy': (end.cpu[name] - begin.cpu[name]) / (end.clock - begin.clock),
      'cpu_per_step': (end.cpu[name] - begin.cpu[name]) / (end.clock - begin.clock) / steps,
      'memory': end.memory[name],
      'shares': _shares(program, name, begin, end),
    }
    for name in sorted(end.cpu)
  }
  means = {
    name: statistics.fmean(report[1 + i] for report in reports) for i, name in enumerate(_REPORTED)
  }
  total = end.machine_total - begin.machine_total
  return {
    'steps_per_second': steps,
    'actor_steps_per_second': actor_steps,
    'environment_frames_per_second': frames,
    'learner_steps_per_second': learner_steps,
    'learned_steps_per_second': learner_steps * steps_per_update,
    **means,
    'nodes': nodes,
    'groups': groups(nodes),
    'machine_busy_share': 1 - (end.machine_idle - begin.machine_idle) / max(total, 1e-9),
    'compiled_before': [name for name, _ in begin.compilations],
    'compiled_after_warm_up': len(end.compilations) - len(begin.compilations),
  }


def groups(nodes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
  """Sums the nodes of each group; memory and shares are means over the nodes."""
  members: dict[str, list[Any]] = {}
  for name, node in nodes.items():
    members.setdefault(group_of(name), []).append(node)
  return {
    group: {
      'nodes': len(nodes),
      'busy': sum(node['busy'] for node in nodes),
      'cpu_per_step': sum(node['cpu_per_step'] for node in nodes),
      'memory': statistics.fmean(node['memory'] for node in nodes),
      'shares': {
        words: statistics.fmean(n['shares'][words] for n in nodes if words in n['shares'])
        for words in sorted({words for node in nodes for words in node['shares']})
      },
    }
    for group, nodes in members.items()
  }


def _window(
  program: RunningProgram, node: str, begin: Instant, end: Instant, *columns: str
) -> list[tuple[float, ...]]:
  """Returns the reports of a node between two instants."""
  rows = curves.read(program.run_dir, node, 'seconds', *columns)
  return [row[1:] for row in rows if begin.second < row[0] <= end.second]


def _shares(program: RunningProgram, name: str, begin: Instant, end: Instant) -> dict[str, float]:
  """Returns the shares of time that a node reports, by label."""
  node = '/'.join(name.rsplit('-', 1))
  shares = {}
  for column, words in _SHARES.items():
    if values := _window(program, node, begin, end, column):
      shares[words] = statistics.fmean(value for (value,) in values)
  columns = ('inference_batches_per_second', 'inference_latency_ms')
  if values := _window(program, node, begin, end, *columns):
    shares['batches in flight'] = statistics.fmean(b * ms / 1e3 for b, ms in values)
  return shares
