"""Runs one node of a graph in this process, which is the first of a Kubernetes pod.

No pod is sent anything: each builds the whole graph from the flags of the manifest, binds every node's
address, of which host and port are known before anything runs, and calls its own node.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import launchpad as lp

from launchers import binding, node_entry

INDEX_VARIABLE = 'JOB_COMPLETION_INDEX'
# Kubernetes kills a pod this long after SIGTERM, which the node's own end must precede.
TERMINATION_SECONDS = 30
_GRACE = 20.0
_STOPPED = 128 + signal.SIGTERM
# What the Job counts of earlier pods in the place of this one: those that count against their restarts,
# and those that were evicted.
_EARLIER = {
  'LAUNCHPOD_FAILURES': 'batch.kubernetes.io/job-index-failure-count',
  'LAUNCHPOD_EVICTIONS': 'batch.kubernetes.io/job-index-ignored-failure-count',
}


def job_name(label: str) -> str:
  """Returns a group's name in host names and manifests, where underscores are not allowed."""
  return label.replace('_', '-')


def ports(program: lp.Program, first_port: int) -> dict[tuple[str, int], list[int]]:
  """Returns the ports of every node, {(label, index): ports}; no two nodes share one."""
  result, port = {}, first_port
  for label, nodes in program.groups.items():
    for index, node in enumerate(nodes):
      result[label, index] = list(range(port, port + len(node.addresses)))
      port += len(node.addresses)
  return result


def life_variables() -> list[dict[str, Any]]:
  """Returns the variables of a container from which its process knows which life of the node it is."""
  return [
    {'name': name, 'valueFrom': {'fieldRef': {'fieldPath': f"metadata.annotations['{key}']"}}}
    for name, key in _EARLIER.items()
  ]


def life() -> int:
  """Returns how many pods have been in the place of this one before."""
  return sum(int(os.environ.get(name) or 0) for name in _EARLIER)  # A Job may leave them out.


def node_index() -> int:
  """Returns which node of its group this pod is, as Kubernetes tells it.

  Raises:
    ValueError: if it does not.
  """
  text = os.environ.get(INDEX_VARIABLE, '')
  if not text.isdecimal():
    raise ValueError(
      f'--launcher=pod is what the pods of --launcher=k8s run; {INDEX_VARIABLE}={text!r} does not say '
      'which node of the group this is.'
    )
  return int(text)


def launch(
  program: lp.Program,
  label: str,
  index: int,
  hosts: str,
  first_port: int,
  ends_program: bool,
  started: Callable[[], None] = lambda: None,
) -> int:
  """Runs a node to its end.

  There is no launcher to tell of `lp.stop()`. The JobSet ends the program when the pod of one group,
  the one with `ends_program`, has succeeded. In that group `lp.stop()` stops the node itself, which
  then succeeds; elsewhere it raises.

  Args:
    program: the graph, the same in every pod.
    label: the node's group.
    index: its place in the group.
    hosts: where nodes are, as in 'run-{job}-0-{index}.run'.
    first_port: the ports of all nodes are counted from here.
    ends_program: whether the end of this node is the program's.
    started: called once every address is bound.

  Returns:
    The exit code: 0; 1 after an exception; 143 after SIGTERM. A pod that is evicted has not done its
    work, and must not pass for one that has.

  Raises:
    ValueError: if there is no such node.
  """
  if index >= len(program.groups.get(label, ())):
    raise ValueError(
      f'--pod_group={label} has no node {index}; the groups are {[*program.groups]}.'
    )
  numbers = ports(program, first_port)
  completed = threading.Event()

  def stop_program(mark_as_completed: bool = False) -> None:
    if not ends_program:
      raise RuntimeError(
        f'node {label}/{index} called lp.stop(), but on Kubernetes only a group that is placed '
        'with_launcher ends the program; say so with --placement.'
      )
    completed.set()
    os.kill(os.getpid(), signal.SIGTERM)

  def addresses(label: str, index: int, count: int) -> list[str]:
    host = hosts.format(job=job_name(label), index=index)
    return [f'{host}:{port}' for port in numbers[label, index]]

  binding.bind(program, addresses, stop_program)
  os.environ['LAUNCHPOD_LIFE'] = str(life())
  started()
  return node_entry.run(
    lambda: program.groups[label][index].function,
    _GRACE,
    lambda: 0 if completed.is_set() else _STOPPED,
  )
