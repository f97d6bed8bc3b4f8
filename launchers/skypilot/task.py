"""Runs one node of a graph in this process, which a task of SkyPilot runs on one of its machines.

SkyPilot starts a task again as a whole, with all of its machines, and an auxiliary task that fails ends
nothing. So this process supervises its node as the launcher of a local run does: it restarts the node
by the policy of its group and kills one that hangs. A failure for good it reports to the process of the
node that ends the program, which then fails.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import math
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

import launchpad as lp

import courier
from environments import entry
from launchers import binding, certificate, one_node, stop_requests, supervise
from launchers.guard import Guard
from launchers.local_node import LocalNode
from launchers.node_output import NodeOutput
from launchers.placement import Resources

INDEX_VARIABLE = 'SKYPILOT_NODE_RANK'
# The secret of each task: key and certificate of the run in one line, base64 of PEM.
CERTIFICATE_VARIABLE = 'LAUNCHPOD_CERTIFICATE'


@dataclasses.dataclass(frozen=True)
class Place:
  """A node and its place in the job group.

  Attributes:
    label: its group.
    index: its index in the group.
    hosts: host name pattern of the nodes, as in '{job}-{index}.run'.
    ending: the group of the node whose end is that of the program.
    port: port of reports to that node; the ports of the nodes follow.
    max_restarts: largest number of restarts of the node in a row.
  """

  label: str
  index: int
  hosts: str
  ending: str
  port: int
  max_restarts: int = 0

  @property
  def ends_program(self) -> bool:
    """Whether the program ends when this node ends."""
    return self.label == self.ending

  @property
  def name(self) -> str:
    """Label and index, as in 'actor/3'."""
    return f'{self.label}/{self.index}'


def secret(pem: bytes) -> str:
  """Returns a key and its certificate as the value of `CERTIFICATE_VARIABLE`."""
  return base64.b64encode(pem).decode()


def take_certificate() -> IO[bytes] | None:
  """Moves the certificate from the environment to a file in memory, which processes of this user open.

  Returns:
    The file, to be kept open; None if the environment has no certificate.

  Raises:
    ValueError: if the variable holds something else; one sentence.
  """
  text = os.environ.pop(CERTIFICATE_VARIABLE, '')
  if not text:
    return None
  try:
    file = certificate.in_memory(base64.b64decode(text, validate=True))
  except ValueError as error:
    raise ValueError(f'{CERTIFICATE_VARIABLE} is not the secret that launch.py wrote.') from error
  os.environ.update(certificate.variable(file))
  return file


def node_index() -> int:
  """Returns the index of this machine's node in its group; raises ValueError outside of a task."""
  return one_node.index_of(
    INDEX_VARIABLE, '--launcher=task is what the tasks of --launcher=skypilot run'
  )


def launch(
  program: lp.Program,
  place: Place,
  callbacks: supervise.RunCallbacks = supervise.NO_CALLBACKS,
  node_timeout: float = math.inf,
) -> int:
  """Runs a node to completion.

  In the node that ends the program `lp.stop()` ends it; elsewhere it raises.

  Args:
    program: the graph, the same in every task.
    place: which node this is.
    callbacks: called while the node runs.
    node_timeout: see `supervise.supervise`.

  Returns:
    The exit code: 0; 1 if this node, or with `ends_program` any other, has failed for good; 143 after
    SIGTERM.

  Raises:
    ValueError: if the graph has no such node, or it cannot be started; one sentence.
  """
  one_node.check_node(program, 'task_group', place.label, place.index)
  try:
    code = _supervise(program, place, callbacks, node_timeout)
  except ValueError as error:
    _report(place, str(error))
    raise
  if code == supervise.FAILED:
    _report(place, f'node {place.name} has failed; its task has the end of its log.')
  return code


def _supervise(
  program: lp.Program, place: Place, callbacks: supervise.RunCallbacks, node_timeout: float
) -> int:
  resources = Resources(
    restart='on_failure' if place.max_restarts else 'never', max_restarts=place.max_restarts
  )
  stopper = (
    binding.SignalStopper(os.getpid()) if place.ends_program else one_node.RefuseStop(place.name)
  )
  with tempfile.TemporaryDirectory() as directory, stop_requests.collected() as asked:
    with binding.starting():
      addresses = one_node.addresses(program, place.hosts, place.port + 1)
      (task,) = binding.prepare(program, addresses, stopper, directory, (place.label, place.index))
      guard = Guard(sys.executable, entry.python_path())
      log_path = os.path.join(directory, 'log')
    output = NodeOutput({place.name: log_path})

    def ended() -> None:
      output.close()  # Its last lines come before the report of a failure.
      callbacks.ended()

    with _reports(place, asked):
      callbacks.started()
      node: LocalNode | None = None
      try:
        with binding.starting():
          node = LocalNode(task, resources, log_path, guard, {})
        output.start()
        watched = dataclasses.replace(callbacks, ended=ended)
        return supervise.supervise([node], asked, None, watched, node_timeout)
      finally:
        if node is not None:
          node.send(signal.SIGKILL)
        guard.close()
        output.close()


@contextlib.contextmanager
def _reports(place: Place, asked: stop_requests.StopRequests) -> Iterator[None]:
  """Receives reports of failures meanwhile, if the node ends the program."""
  if not place.ends_program:
    yield
    return

  def failed(sentence: str) -> None:
    asked.failure = asked.failure or sentence

  server = courier.Server(port=place.port, data_only=True)
  server.Bind('failed', failed)
  server.Start()
  try:
    yield
  finally:
    server.Stop()


def _report(place: Place, sentence: str) -> None:
  """Reports a failure to the node that ends the program.

  Waits for it as long as it takes: its machine may be on its way. SkyPilot ends this task with the
  program.
  """
  if not place.ends_program:
    host = place.hosts.format(job=one_node.host_name(place.ending), index=0)
    with contextlib.suppress(courier.StatusNotOk):
      courier.Client(f'{host}:{place.port}', data_only=True).failed(sentence)
