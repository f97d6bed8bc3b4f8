"""Finds a machine of a Ray cluster for every node of a graph."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import launchpad as lp
import ray
from ray import cloudpickle
from ray.util import placement_group

from launchers import binding, child_process, disk_space, guard, heartbeat, interpreter
from launchers.placement import Resources
from launchers.ray import reservation, supervisor
from launchers.ray.node import RayNode, first_line
from nodes.runtime import listening

# Modules that a machine gets from the launcher, so that it can report what it lacks.
BY_VALUE = (interpreter, guard, heartbeat, listening, child_process, disk_space, supervisor)


def find(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  timeout: float,
  nodes: list[RayNode],
  requests: list[int],
) -> bool:
  """Places every node on a machine that Ray chooses.

  Groups with an accelerator are placed first, so that other groups do not take the cores of its machine.

  Args:
    program: the graph.
    placement: resources of each group.
    run_dir: the run directory.
    timeout: seconds for Ray to place all nodes.
    nodes: an empty list; receives the nodes as they are created, in the order of the graph once all are
      placed.
    requests: signal handlers may append to it during the call, which then stops waiting.

  Returns:
    Whether every node has been placed; False after a request.

  Raises:
    ValueError: if a group does not fit on the cluster, or a machine lacks the code.
  """
  code = _code(run_dir)
  end = time.monotonic() + timeout
  for with_accelerator in (True, False):
    for label, group in program.groups.items():
      resources = placement[label]
      if (resources.accelerator is not None) == with_accelerator:
        for node, create in zip(group, _creators(label, resources, len(group)), strict=True):
          ports = len(node.addresses)
          nodes.append(RayNode(label, ports, resources, code, create, timeout, requests))
    pending = [node.reservation for node in nodes]
    while pending and time.monotonic() < end and not requests:
      pending = ray.wait(pending, num_returns=len(pending), timeout=0.25)[1]
    if requests:
      return False
    stuck = [n.label for n in nodes if n.reservation in pending or _is_unschedulable(n)]
    if stuck:
      _refuse(stuck, program, placement, timeout)
  order = list(program.groups)
  nodes.sort(key=lambda node: order.index(node.label))  # Stable, so that each group keeps its own.
  for node in nodes:
    try:
      node.place = place = ray.get(node.reservation)
    except ray.exceptions.RayError as error:
      raise ValueError(
        f'Ray could not start a worker for group {node.label!r}: {first_line(error)}'
      ) from error
    if place.problem:
      raise ValueError(
        f'machine {place.machine}, which Ray chose for group {node.label!r}, {place.problem}; every '
        'machine needs the code and its environment at the same path, as on a shared file system.'
      )
  return True


def _code(run_dir: str) -> supervisor.Code:
  for module in BY_VALUE:
    cloudpickle.register_pickle_by_value(module)
  return supervisor.Code(
    python=sys.executable,
    version='{}.{}'.format(*sys.version_info[:2]),
    root=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    # Importing Ray puts its own copies of other packages first on the path.
    python_path=binding.python_path(
      os.path.join(os.path.dirname(ray.__file__), 'thirdparty_files')
    ),
    run_dir=run_dir,
  )


def _creators(label: str, resources: Resources, num_nodes: int) -> list[Callable[[], Any]]:
  """Returns a function for each node of a group that creates its supervisor actor."""
  if reservation.is_gang(resources, num_nodes):
    gang = placement_group(**reservation.gang(label, resources, num_nodes))
    options = [reservation.in_gang(gang, i) for i in range(num_nodes)]
  else:
    here = ray.get_runtime_context().get_node_id()
    options = [reservation.options(label, resources, here)] * num_nodes
  actor = ray.remote(supervisor.Supervisor)
  # Polling, signalling and closing run concurrently.
  return [actor.options(**o, max_concurrency=8).remote for o in options]


def _is_unschedulable(node: RayNode) -> bool:
  """Returns whether Ray has reported that it can never place a node."""
  try:
    ray.get(node.reservation)
  except ray.exceptions.ActorUnschedulableError:
    return True
  except ray.exceptions.RayError:
    pass
  return False


def _refuse(
  labels: list[str], program: lp.Program, placement: Mapping[str, Resources], timeout: float
) -> NoReturn:
  """Raises the ValueError that names a group without a place, and the cluster's resources.

  Args:
    labels: groups of the nodes without a place. A group that fits on no machine is named before a group
      that may only be late.
    program: the graph.
    placement: resources of each group.
    timeout: seconds that Ray has had.
  """
  machines = [machine for machine in ray.nodes() if machine['Alive']]
  label = min(labels, key=lambda label: _has_room(label, placement[label], machines))
  resources, size = placement[label], len(program.groups[label])
  needs = reservation.describe(label, resources)
  needs += (
    f' on {size} machines at once' if reservation.is_gang(resources, size) else ' for each node'
  )
  total, free = ray.cluster_resources(), ray.available_resources()
  claimed = reservation.amounts(reservation.options(label, resources)).keys() - {'memory'}
  names = sorted({'CPU'} | claimed | (total.keys() & {'GPU', 'TPU'}))
  has = ', '.join(f'{free.get(n, 0):g} of {total.get(n, 0):g} {n}' for n in names)
  raise ValueError(
    f'group {label!r} needs {needs}, and after {timeout:g} s Ray has no place ready for '
    f'{labels.count(label)} of its {size}; the {len(machines)} machines of the cluster have free: '
    f'{has}. Ask for less with --placement, add machines, or raise --ray_timeout.'
  )


def _has_room(label: str, resources: Resources, machines: list[dict[str, Any]]) -> bool:
  """Returns whether some machine, if idle, could run a node of the group."""
  claims = reservation.amounts(reservation.options(label, resources))
  return any(
    all(machine['Resources'].get(name, 0) >= amount for name, amount in claims.items())
    and resources.labels.items() <= machine['Labels'].items()
    for machine in machines
  )
