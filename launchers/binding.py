"""Binds the addresses of a graph and pickles its nodes, for every launcher of this repository.

Launchpad's launch types are a closed set, but every part they use is public. A launcher is therefore a
function of a program: initialise the contexts, connect the handles, bind the addresses, serialise each
node's function, and have `launchers.node_entry` call it in a separate process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator

import launchpad as lp
from launchpad.launch import serialization

from environments import entry, interpreters
from launchers import pickling, stop_requests
from launchers.placement import Resources
from nodes.runtime import listening
from nodes.runtime.lifecycle import RUN_VARIABLE
from rundir import node_files


class StaticAddress(lp.AbstractAddressBuilder):
  """An address known at launch."""

  def __init__(self, address: str):
    self._address = address

  def build(self) -> str:
    """Returns host:port."""
    return self._address


@dataclasses.dataclass(frozen=True)
class SignalStopper:
  """Stops a local program; `lp.stop()` calls it in a node."""

  launcher_pid: int

  def __call__(self, mark_as_completed: bool = False) -> None:
    """Signals the launcher."""
    os.kill(self.launcher_pid, stop_requests.DONE)


@dataclasses.dataclass(frozen=True)
class NodeTask:
  """One node, ready to run.

  Attributes:
    label: its group.
    index: its place in the group.
    payload: path of the file with its pickled function.
  """

  label: str
  index: int
  payload: str

  @property
  def name(self) -> str:
    """Label and index, as in 'actor/3'."""
    return f'{self.label}/{self.index}'


def run_token() -> dict[str, str]:
  """Returns the environment variable by which a server recognises the actors of its own launch."""
  return {RUN_VARIABLE: os.urandom(16).hex()}


@contextlib.contextmanager
def starting() -> Iterator[None]:
  """Reports an OSError before the first node runs, such as that of a full disk, as a ValueError."""
  try:
    yield
  except OSError as error:
    where = f'{error.filename}: ' if error.filename else ''
    raise ValueError(f'the nodes cannot be started: {where}{error.strerror or error}.') from error


def free_ports(count: int) -> list[int]:
  """Returns ports that nothing on this machine listens on."""
  return listening.close(listening.bind_ports(count))


def log_path(run_dir: str, task: NodeTask) -> str:
  """Returns the file for a node's output, and creates its directory."""
  os.makedirs(node_files.directory(run_dir), exist_ok=True)
  return node_files.log_path(run_dir, task.name)


def interpreter_of(resources: Resources) -> str:
  """Returns the path of the interpreter of a group's nodes."""
  return resources.python or sys.executable


def import_variables(resources: Resources, leave_out: str = '') -> dict[str, str]:
  """Returns the variables by which the interpreter of a group's nodes finds what they import.

  Args:
    resources: those of the group.
    leave_out: as for `python_path`.
  """
  if resources.python:
    return interpreters.variables()
  return {'PYTHONPATH': entry.python_path(leave_out)}


def bind(
  program: lp.Program,
  addresses: Callable[[str, int, int], list[str]],
  stopper: Callable[[], None],
) -> None:
  """Connects the handles of a program and binds its addresses. Its nodes can then be called.

  Args:
    program: the graph.
    addresses: maps (label, index, count) to host:port for each of the `count` addresses of that node.
    stopper: called in a node's process by `lp.stop()`.
  """
  for nodes in program.groups.values():
    for node in nodes:
      node.launch_context.initialize(
        lp.LaunchType.LOCAL_MULTI_PROCESSING, launch_config=None, program_stopper=stopper
      )
  for label, nodes in program.groups.items():
    for node in nodes:
      for handle in node.input_handles:
        handle.connect(node, label)
  for label, nodes in program.groups.items():
    for index, node in enumerate(nodes):
      hosts = addresses(label, index, len(node.addresses))
      for address, host in zip(node.addresses, hosts, strict=True):
        address.bind(StaticAddress(host))


def prepare(
  program: lp.Program,
  addresses: Callable[[str, int, int], list[str]],
  stopper: Callable[[], None],
  directory: str,
  only: tuple[str, int] | None = None,
) -> list[NodeTask]:
  """Binds a program's addresses and writes one file with the pickled function of each node.

  Args:
    program: the graph.
    addresses: as for `bind`.
    stopper: as for `bind`; picklable.
    directory: an existing directory, readable on every machine that runs a node.
    only: label and index of the one node that is needed; None for all.

  Raises:
    ValueError: if a node cannot be pickled or its file cannot be written; names the node or the file.
  """
  bind(program, addresses, stopper)
  serialization.enable_lru_cache_pickling_once()
  tasks = []
  for label, nodes in program.groups.items():
    for index, node in enumerate(nodes):
      if only not in (None, (label, index)):
        continue
      task = NodeTask(label, index, os.path.join(directory, f'{label}-{index}.pkl'))
      payload = pickling.dumps(task.name, node.function)
      try:
        with open(task.payload, 'wb') as f:
          f.write(payload)
      except OSError as error:
        raise ValueError(f'{task.payload} cannot be written: {error.strerror}.') from error
      tasks.append(task)
  return tasks
