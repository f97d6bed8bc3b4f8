"""Measures what is beside the data path of a program with thousands of actors.

python -m benchmarks.wide
python -m benchmarks.wide --nodes=64,512,4096 --seconds=60

Everything measured is what runs use. The actors are stand-ins: `sleep` processes, whose heartbeats one
process writes to their pipes, and clients of the monitor, which report over connections of their own.

plan: seconds of `launch.py --dry_run`, and the KiB of the JobSet and of the Slurm script.
records: seconds for binding the addresses and writing the file of each node, and their MiB.
launcher, monitor: their CPU time, in percent of a core, while every actor plays, and the reports that
the monitor gets. The launcher supervises, polls the monitor, writes a line every 5 seconds and
`processes.csv`.
page: milliseconds of CPU time for an answer to a browser, which asks every 2 seconds; its size and the
longest wait for one.
back: seconds after a restart of the monitor within which half and all of its clients have reported,
and how many of them did so within the busiest 0.1 seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import psutil
from absl import app, flags

import courier
from agents.options import flatten
from agents.options import make as make_config
from benchmarks import costs, output
from benchmarks.running import ROOT
from launchers import binding
from launchers.graph import flow
from nodes.runtime import open_files
from programs import sebulba
from rundir import graph_file, run_directory

_NODES = flags.DEFINE_list('nodes', ['64', '512', '4096'], 'numbers of actors')
_SECONDS = flags.DEFINE_float('seconds', 60.0, 'length of the measurement', lower_bound=1.0)
_POLL_SECONDS = 2.0
_DRIVERS = 2  # Processes that the clients share.


@contextlib.contextmanager
def _process(*words: object) -> Iterator[subprocess.Popen[str]]:
  """Runs `benchmarks.wide_process`; yields it once it has printed its first line."""
  command = [sys.executable, '-m', 'benchmarks.wide_process', *map(str, words)]
  with subprocess.Popen(
    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
  ) as process:
    try:
      assert process.stdout is not None
      if not process.stdout.readline():
        raise RuntimeError(f'the stand-in {words[0]} failed; its traceback is above.')
      yield process
    finally:
      process.terminate()  # The launcher then ends the nodes.
      process.wait()


@contextlib.contextmanager
def _page(run_dir: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
  """Serves the live page; yields its process and the address of its state."""
  command = [sys.executable, 'watch.py', run_dir, '--web']
  with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
    try:
      assert process.stdout is not None
      for line in process.stdout:
        if found := re.match(r'(http://[^/]+)/\?(token=\S+)', line):
          yield process, f'{found[1]}/state?{found[2]}'
          break
    finally:
      process.kill()


def _dry_run(size: int, *further: str) -> tuple[float, str]:
  """Returns the seconds that a dry run takes, and what it prints."""
  options = f'--num_actors={size}', '--num_steps=10000000000'
  command = [sys.executable, 'launch.py', '--dry_run', *options, *further]
  began = time.monotonic()
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  return time.monotonic() - began, done.stdout


def make_run(run_dir: str, size: int) -> None:
  """Makes the directory of a run with so many actors, as launch.py does."""
  options = {'num_steps': 10**10, 'run_dir': run_dir, 'num_actors': size}
  config = make_config(sebulba.Config, **options).resolve()
  run_directory.create(run_dir)
  run_directory.write_record(run_dir, 'sebulba', {}, flatten(config))
  graph = flow.graph(sebulba.make_program(config), sebulba.placement(config))
  graph_file.write(run_dir, graph)


def measure(size: int, seconds: float) -> dict[str, Any]:
  """Measures a program with so many actors; returns a row of the table, by name."""
  row: dict[str, Any] = {'actors': size}
  row['plan_seconds'], _ = _dry_run(size)
  _, jobset = _dry_run(size, '--launcher=k8s', '--image=image', '--k8s_name=wide')
  _, job = _dry_run(size, '--launcher=slurm')
  row['jobset_bytes'] = len(jobset[jobset.index('apiVersion') :])
  row['slurm_bytes'] = len(job[job.index('#!/bin/sh') :])
  with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
    done = subprocess.run(
      [sys.executable, '-m', 'benchmarks.wide_process', 'records', directory, str(size)],
      cwd=ROOT,
      stdout=subprocess.PIPE,
      text=True,
      check=True,
    )
    row |= json.loads(done.stdout)
    run_dir = os.path.join(directory, 'run')
    make_run(run_dir, size)
    (port,) = binding.free_ports(1)
    monitor = stack.enter_context(_process('monitor', run_dir, port))
    for driver in range(_DRIVERS):
      stack.enter_context(_process('reporters', port, size, driver, _DRIVERS))
    launcher = stack.enter_context(_process('launcher', run_dir, port, size))
    page, address = stack.enter_context(_page(run_dir))
    client = courier.Client(f'127.0.0.1:{port}', call_timeout=60.0, data_only=True)
    pids = {'launcher': launcher.pid, 'monitor': monitor.pid, 'page': page.pid}
    row |= _while_it_runs(pids, client, address, seconds)
    monitor.kill()
    monitor.wait()
    stack.enter_context(_process('monitor', run_dir, port))
    times = client.first_reports(size)
    row['half_back'], row['all_back'] = times[len(times) // 2], times[-1]
    row['busiest'] = max(sum(t <= other < t + 0.1 for other in times) for t in times[::8])
  return row


def _while_it_runs(
  pids: dict[str, int], client: courier.Client, address: str, seconds: float
) -> dict[str, Any]:
  """Polls the page for some seconds, after a warm-up; returns the CPU time of processes, and more."""
  sizes: list[int] = []
  replies: list[float] = []
  stop = threading.Event()

  def poll() -> None:
    while not stop.wait(_POLL_SECONDS):
      began = time.monotonic()
      with urllib.request.urlopen(address) as reply:
        sizes.append(len(reply.read()))
      replies.append(time.monotonic() - began)

  thread = threading.Thread(target=poll)
  thread.start()
  time.sleep(seconds / 2)
  processes = {name: psutil.Process(pid) for name, pid in pids.items()}
  before = {name: costs.cpu_seconds(process) for name, process in processes.items()}
  began, skipped, reports = time.monotonic(), len(sizes), client.num_reports()
  time.sleep(seconds)
  elapsed, answers = time.monotonic() - began, len(sizes) - skipped
  reports = client.num_reports() - reports
  used = {name: costs.cpu_seconds(process) - before[name] for name, process in processes.items()}
  memory = {f'{name}_bytes': process.memory_full_info().uss for name, process in processes.items()}
  stop.set()
  thread.join()
  return (
    {name: share / elapsed for name, share in used.items()}
    | memory
    | {'reports_per_second': reports / elapsed, 'page_cpu': used['page'] / max(answers, 1)}
    | {'state_bytes': max(sizes), 'poll_seconds': max(replies)}
  )


def main(argv: list[str]) -> None:
  """Measures, and prints the table."""
  del argv
  open_files.allow_many()
  table = output.Table(
    actors='>6',
    plan_s='>7.1f',
    jobset_KiB='>10.1f',
    slurm_KiB='>9.1f',
    records_s='>9.1f',
    records_MiB='>11.1f',
    launcher='>8.1%',
    monitor='>7.1%',
    reports_per_s='>13.0f',
    page_ms='>7.0f',
    page_KiB='>8.0f',
    poll_s='>6.2f',
    half_back_s='>11.1f',
    all_back_s='>10.1f',
    busiest='>7',
  )
  for size in map(int, _NODES.value):
    row = measure(size, _SECONDS.value)
    table.add(
      size,
      row['plan_seconds'],
      row['jobset_bytes'] / 1024,
      row['slurm_bytes'] / 1024,
      row['records_seconds'],
      row['records_bytes'] / 2**20,
      row['launcher'],
      row['monitor'],
      row['reports_per_second'],
      1e3 * row['page_cpu'],
      row['state_bytes'] / 1024,
      row['poll_seconds'],
      row['half_back'],
      row['all_back'],
      row['busiest'],
    )


if __name__ == '__main__':
  app.run(main)
