"""Runs one node of a graph in this process, which is the first process of a Kubernetes pod."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import launchpad as lp

from launchers import binding, node_entry, one_node
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
  """Returns the index of this pod's node in its group; raises ValueError outside of a pod."""
  return one_node.index_of(INDEX_VARIABLE, '--launcher=pod is what the pods of --launcher=k8s run')


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
  one_node.check_node(program, 'pod_group', label, index)
  completed = threading.Event()

  def stop_program(mark_as_completed: bool = False) -> None:
    completed.set()
    os.kill(os.getpid(), signal.SIGTERM)

  stopper = stop_program if ends_program else one_node.RefuseStop(f'{label}/{index}')
  binding.bind(program, one_node.addresses(program, hosts, first_port), stopper)
  os.environ[RESTART_COUNT_VARIABLE] = str(restart_count())
  started()
  return node_entry.run(
    lambda: program.groups[label][index].function,
    _GRACE,
    lambda: 0 if completed.is_set() else _STOPPED,
  )
