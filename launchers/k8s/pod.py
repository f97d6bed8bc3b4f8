"""Runs one node of a graph in this process, which is the first process of a Kubernetes pod.

Pods receive no payload. Each pod builds the whole graph from the flags of the manifest and binds every
node's address: hosts and ports are known before the start. It then calls its own node.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import launchpad as lp

from launchers import binding, node_entry
from nodes.runtime.lifecycle import RESTART_COUNT_VARIABLE

INDEX_VARIABLE = 'JOB_COMPLETION_INDEX'
# Kubernetes kills a pod this long after SIGTERM; the node must exit earlier.
TERMINATION_SECONDS = 30
_GRACE = 20.0
_STOPPED = 128 + signal.SIGTERM
# The Job's counts of earlier pods with this index: failures, which count against the restart limit, and
# evictions.
_EARLIER = {
  'LAUNCHPOD_FAILURES': "metadata.annotations['batch.kubernetes.io/job-index-failure-count']",
  'LAUNCHPOD_EVICTIONS': "metadata.annotations['batch.kubernetes.io/job-index-ignored-failure-count']",
}
# How often the JobSet has restarted, with Jobs that count anew.
_ATTEMPT = {'LAUNCHPOD_ATTEMPT': "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}
_MOST_PODS = 100_000  # With one index in one Job.


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


def restart_variables() -> list[dict[str, Any]]:
  """Returns the variables of a container from which `restart_count` is computed."""
  return [
    {'name': name, 'valueFrom': {'fieldRef': {'fieldPath': path}}}
    for name, path in (_EARLIER | _ATTEMPT).items()
  ]


def restart_count() -> int:
  """Returns a number that is larger than that of every earlier pod of this node, and 0 for the first.

  It is the number of earlier pods, with a gap after each restart of the JobSet.
  """
  pods, attempts = (
    sum(int(os.environ.get(name) or 0) for name in names)  # A Job may omit them.
    for names in (_EARLIER, _ATTEMPT)
  )
  return attempts * _MOST_PODS + pods


def node_index() -> int:
  """Returns the index of this pod's node in its group, from Kubernetes' variable.

  Raises:
    ValueError: if the variable is missing.
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
  """Runs a node to completion.

  No launcher receives `lp.stop()`. The JobSet ends the program when the pod with `ends_program` has
  succeeded. In that pod `lp.stop()` stops the node itself, which then succeeds; elsewhere it raises.

  Args:
    program: the graph, the same in every pod.
    label: the node's group.
    index: its index in the group.
    hosts: host name pattern of the nodes, as in 'run-{job}-0-{index}.run'.
    first_port: first port; nodes get consecutive ports.
    ends_program: whether the program ends when this node ends.
    started: called once every address is bound.

  Returns:
    The exit code: 0; 1 after an exception; 143 after SIGTERM, because an evicted pod has not completed
    its work and must not count as a success.

  Raises:
    ValueError: if the graph has no such node.
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
  os.environ[RESTART_COUNT_VARIABLE] = str(restart_count())
  started()
  return node_entry.run(
    lambda: program.groups[label][index].function,
    _GRACE,
    lambda: 0 if completed.is_set() else _STOPPED,
  )
