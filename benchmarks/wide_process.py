"""The processes of `benchmarks.wide`: run with a role and its arguments.

Each prints a line once it is up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import courier
from agents.options import make as make_config
from launchers import binding, heartbeat, stop_requests, supervise, terminal
from launchers.heartbeat import Beat
from launchers.placement import Resources
from nodes.runtime import open_files
from nodes.runtime.reporter import Reporter
from programs import sebulba
from rundir import node_files, run_directory

_BEAT = Beat('playing', 12.3, 0.0, 1.0, 41.5, 123.45, 12, 9, 'worker', has_worked=True)
_SLICES = 10  # Of a second, in each of which a part of the nodes sends its heartbeat.
_LEARNER = {f'metric_{i}': 0.1 * i for i in range(20)}  # As wide as a real one.


def _ready() -> None:
  print('ready', flush=True)


def _program(run_dir: str) -> Any:
  config = make_config(sebulba.Config, **run_directory.config_of(run_dir))
  return sebulba.make_program(config)


def monitor(run_dir: str, port: str) -> None:
  """Serves the monitor of a run, which knows when each node has reported first, until killed."""
  from nodes.monitor import Monitor

  began, first, arrived = time.monotonic(), dict[str, float](), threading.Condition()

  class Timed(Monitor):
    reports = 0

    def report(self, node: str, *arguments: Any) -> float:
      self.reports += 1
      if node not in first:
        with arrived:
          first[node] = time.monotonic() - began
          arrived.notify_all()
      return super().report(node, *arguments)

    def num_reported(self) -> int:
      return len(first)

    def num_reports(self) -> int:
      return self.reports

    def first_reports(self, number: int) -> list[float]:
      with arrived:
        arrived.wait_for(lambda: len(first) >= number, 50.0)
      return sorted(first.values())

  timed = Timed(run_dir, 10**10, ['evaluator/0'])
  server = courier.Server(port=int(port), data_only=True)
  served = 'report', 'count', 'status', 'finished', 'num_reported', 'num_reports', 'first_reports'
  for name in served:
    server.Bind(name, getattr(timed, name))
  server.Start()
  _ready()
  timed.run()


def reporters(port: str, size: str, driver: str, drivers: str) -> None:
  """Reports as a part of the actors do, and as the learner does, until stopped."""
  nodes = [f'actor/{i}' for i in range(int(driver), int(size), int(drivers))]
  shares = {'stepping_share': 0.25, 'waiting_share': 0.7}
  steps = [0.0]

  def learned(seconds: float) -> dict[str, float]:
    steps[0] += 1000.0 * seconds
    counts = {'actor_steps': steps[0], 'environment_frames': steps[0], 'learner_steps': steps[0]}
    return _LEARNER | counts | {'actor_steps_per_second': 1000.0, 'learner_waiting_share': 0.5}

  def client() -> courier.Client:
    return courier.Client(f'127.0.0.1:{port}', call_timeout=30.0, data_only=True)

  all_reporters = [Reporter(client(), node, lambda seconds: shares, 2.0) for node in nodes]
  if driver == '0':
    all_reporters.append(Reporter(client(), 'inference_learner/0', learned))
  asker, expected = client(), len(nodes) * (int(driver) + 1)
  is_ready = False
  while True:
    for reporter in all_reporters:
      reporter.maybe_report()
    if not is_ready and asker.num_reported() >= expected:
      is_ready = True
      _ready()
    time.sleep(0.1)


class _Sleeper:
  """A node whose process sleeps; a `watched.Node`."""

  def __init__(self, name: str, log_path: str):
    self.name, self.log_path, self.resources = name, log_path, Resources()
    beats, self.heart = os.pipe()
    with open(log_path, 'ab') as log:
      self._process = subprocess.Popen(['sleep', '1000000'], stdout=log)
    self._listener = heartbeat.Listener(heartbeat.pipe_reader(beats))

  def exit_code(self) -> int | None:
    return self._process.poll()

  def ending(self) -> str:
    return 'ended'

  def beat(self) -> tuple[Beat | None, float]:
    self._listener.poll()
    return self._listener.beat, self._listener.age()

  def is_stopped(self) -> bool:
    return False

  def send(self, number: int) -> None:
    self._process.send_signal(number)

  def can_restart(self) -> bool:
    return False

  def restart(self) -> None:
    raise OSError


def hearts(*descriptors: str) -> None:
  """Writes a heartbeat to each pipe once a second, until killed."""
  _ready()
  line = _BEAT.pack()
  pipes = [int(descriptor) for descriptor in descriptors]
  while True:
    for first in range(_SLICES):
      for pipe in pipes[first::_SLICES]:
        os.write(pipe, line)
      time.sleep(1 / _SLICES)


def launcher(run_dir: str, port: str, size: str) -> None:
  """Supervises sleeping nodes and shows the run as a launcher does, until stopped."""
  program = _program(run_dir)
  stopper = binding.SignalStopper(os.getpid())
  binding.bind(program, lambda label, index, count: [f'127.0.0.1:{port}'] * count, stopper)
  os.makedirs(node_files.directory(run_dir), exist_ok=True)
  names = [f'actor/{i}' for i in range(int(size))]
  nodes = [_Sleeper(name, node_files.log_path(run_dir, name)) for name in names]
  pipes = [node.heart for node in nodes]
  command = [sys.executable, '-m', 'benchmarks.wide_process', 'hearts', *map(str, pipes)]
  beating = subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=pipes)
  _ready()
  sys.stdout = open(os.path.join(run_dir, 'launcher.log'), 'w')  # noqa: SIM115  is never closed
  try:
    with stop_requests.collected() as asked, terminal.shown(program, 'wide', run_dir) as callbacks:
      callbacks.started()
      supervise.supervise(nodes, asked, sys.stderr, callbacks, 60.0)
  finally:
    beating.kill()
    for node in nodes:
      node.send(signal.SIGKILL)


def records(directory: str, size: str) -> None:
  """Binds the addresses of a program and writes the file of each node; prints what that takes."""
  config = make_config(
    sebulba.Config, num_steps=10**10, run_dir=directory, num_actors=int(size)
  ).resolve()
  program = sebulba.make_program(config)
  folder = os.path.join(directory, 'nodes')
  os.makedirs(folder)
  began = time.monotonic()
  ports = iter(range(20_000, 60_000))
  addresses = lambda label, index, count: [f'127.0.0.1:{next(ports)}' for _ in range(count)]  # noqa: E731
  tasks = binding.prepare(program, addresses, binding.SignalStopper(os.getpid()), folder)
  seconds = time.monotonic() - began
  total = sum(os.path.getsize(task.payload) for task in tasks)
  print(json.dumps({'records_seconds': seconds, 'records_bytes': total}))


if __name__ == '__main__':
  open_files.allow_many()
  roles = (monitor, reporters, hearts, launcher, records)
  {role.__name__: role for role in roles}[sys.argv[1]](*sys.argv[2:])
