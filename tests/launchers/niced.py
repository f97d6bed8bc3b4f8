"""An engine: every node is a process of this machine that yields to others by its niceness."""

import dataclasses
import os
import sys

from environments import entry
from launchers import binding, certificate, stop_requests, supervise, watched
from launchers.child_process import NodeProcess
from launchers.engine import Engine
from launchers.guard import Guard
from launchers.options import option
from launchers.placement import environment_variables


@dataclasses.dataclass(frozen=True)
class Niced(Engine):
  niceness: int = option(10, 'niceness of the nodes', flag='niceness', at_least=0, at_most=19)

  def check(self, job, dry_run):
    for label, resources in job.placement.items():
      if resources.accelerator:
        raise ValueError(f'group {label!r} needs an accelerator, which --launcher=niced has not.')
    return ()

  def launch(self, job, callbacks):
    def addresses(label, index, count):
      return [f'127.0.0.1:{port}' for port in binding.free_ports(count)]

    payloads = os.path.join(job.run_dir, 'nodes')
    os.makedirs(payloads)
    stopper = binding.SignalStopper(os.getpid())
    tasks = binding.prepare(job.program, addresses, stopper, payloads)
    callbacks.started()
    pem, guard = (
      certificate.in_memory(certificate.new()),
      Guard(sys.executable, entry.python_path()),
    )
    identity = binding.run_token() | certificate.variable(pem)
    with stop_requests.collected() as asked:
      try:
        nodes = [Node(task, job, identity, guard, self.niceness) for task in tasks]
        return supervise.supervise(nodes, asked, None, callbacks, job.node_timeout)
      finally:
        guard.close()  # Kills what still runs.
        pem.close()


class Node:
  def __init__(self, task, job, identity, guard, niceness):
    self.name, self.log_path = task.name, binding.log_path(job.run_dir, task)
    self.resources = job.placement[task.label]
    self._payload, self._identity, self._guard, self._niceness = (
      task.payload,
      identity,
      guard,
      niceness,
    )
    self.restart()

  def restart(self):
    environment = os.environ | environment_variables(self.resources) | self._identity
    environment |= binding.import_variables(self.resources)
    python = binding.interpreter_of(self.resources)
    with open(self.log_path, 'ab') as log:
      process = NodeProcess(python, self._payload, environment, log, self._guard.mark())
    os.setpriority(os.PRIO_PROCESS, process.pid, self._niceness)
    self.exit_code, self.beat, self.send = process.exit_code, process.beat, process.send
    self.is_stopped = process.is_stopped

  def ending(self):
    return watched.describe_exit(self.exit_code())

  def can_restart(self):
    return True
