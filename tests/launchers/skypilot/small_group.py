"""Plays SkyPilot for a job group: the machines of its tasks are processes of this machine.

A task whose process fails has failed, and its other processes are killed. The group goes on without it,
unless it is a primary task: when all of those have ended, the other tasks are terminated.
"""

import os
import re
import subprocess
import sys
import time

from launchers.skypilot import job_group, task
from tests.programs_under_test import ROOT
from tests.waiting import wait_until


class SmallGroup:
  """Runs one job group.

  Attributes:
    processes: the process of each node, by name, such as 'inference-learner/0'.
    succeeded: whether the primary tasks have; None while one of them runs.
    logs: the directory with the output of each process.
  """

  def __init__(self, documents, directory, port):
    """Starts the processes.

    Args:
      documents: the header and the tasks.
      directory: an existing directory; gets the volume, `volume/`, and `logs/`.
      port: first of the ports on this machine that take the place of those of all machines.
    """
    header, *tasks = documents
    assert header['execution'] == 'parallel'
    self._primary = header['primary_tasks']
    self._volume = directory / 'volume'
    self._port = port
    self.logs = directory / 'logs'
    for path in (self._volume, self.logs):
      path.mkdir(exist_ok=True)
    self.succeeded = None
    self.processes = {
      f'{one["name"]}/{rank}': self._start(header['name'], one, rank)
      for one in tasks
      for rank in range(one['num_nodes'])
    }

  def _start(self, name, one, rank):
    command = one['run']
    for there, here in (
      ('cd /launchpod ', f'cd {ROOT} '),
      (f'{job_group.PYTHON} ', f'{sys.executable} '),
      (job_group.hosts(name), 'localhost'),
      (f'--task_port={job_group.Run("", "", []).port}', f'--task_port={self._port}'),
    ):
      assert there in command or there.startswith(('/', '--task_port')), (there, command)
      command = command.replace(there, here)
    command = re.sub(r'(=)/runs/', rf'\1{self._volume}/', command)
    variables = {**one['envs'], **one['secrets'], task.INDEX_VARIABLE: str(rank)}
    with open(self.logs / f'{one["name"]}-{rank}.log', 'w') as log:
      return subprocess.Popen(
        ['bash', '-c', command],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
      )

  def step(self):
    """Looks at each process once."""
    for name, process in self.processes.items():
      if process.poll():
        for other, fellow in self.processes.items():
          if other != name and other.split('/')[0] == name.split('/')[0] and not fellow.poll():
            fellow.kill()
    if self.succeeded is None:
      codes = [p.poll() for n, p in self.processes.items() if n.split('/')[0] in self._primary]
      if None not in codes:
        self.succeeded = not any(codes)

  def run_until(self, condition, deadline):
    """Runs the processes until `condition()`, for at most `deadline` seconds."""
    wait_until(condition, self.step, deadline, poll=0.05, explain=self.output)

  def run(self, deadline):
    """Runs the group to its end; returns whether it has succeeded."""
    try:
      self.run_until(lambda: self.succeeded is not None, deadline)
    finally:
      self.cancel()
    return self.succeeded

  def cancel(self, grace=10.0):
    """Ends all processes that are left, by SIGTERM and then by SIGKILL."""
    left = [process for process in self.processes.values() if process.poll() is None]
    for process in left:
      process.terminate()
    end = time.monotonic() + grace
    for process in left:
      try:
        process.wait(max(0.0, end - time.monotonic()))
      except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

  def output(self):
    """Returns what all processes have printed."""
    return ''.join(path.read_text() for path in sorted(self.logs.iterdir()))
