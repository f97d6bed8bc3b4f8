"""Finds a machine of a Ray cluster for every node of a graph."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn

import launchpad as lp
import ray
from ray import cloudpickle
from ray.util import placement_group

from environments import entry
from environments.interpreters import ROOT
from launchers import (
  binding,
  certificate,
  child_process,
  disk_space,
  guard,
  heartbeat,
  streams,
)
from launchers.placement import Resources
from launchers.ray import capacity, reservation, supervisor
from launchers.ray.node import RayNode, first_line
from nodes.runtime import listening

DEFAULT_SECONDS = 60.0  # For Ray to place all nodes.
_ANNOUNCE_SECONDS = 1.5
# Modules that a machine gets from the launcher, so that it can report what it lacks.
BY_VALUE = (
  *(entry, certificate, guard, heartbeat, listening),
  *(child_process, disk_space, supervisor),
)


def find(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  timeout: float | None,
  nodes: list[RayNode],
  requests: list[int],
  out: IO[str] | None = None,
) -> bool:
  """Places every node on a machine that Ray chooses.

  Groups with an accelerator are placed first, so that other groups do not take the cores of its machine.

  Args:
    program: the graph.
    placement: resources of each group.
    run_dir: the run directory.
    timeout: seconds for Ray to place all nodes, perhaps on machines that join meanwhile. None for
      `DEFAULT_SECONDS`, but none at all if the machines of the cluster are too few or too small.
    nodes: an empty list; receives the nodes as they are created, in the order of the graph once all are
      placed.
    requests: signal handlers may append to it during the call, which then stops waiting.
    out: is told what the call waits for; None for stderr.

  Returns:
    Whether every node has been placed; False after a request.

  Raises:
    ValueError: if a group does not fit on the cluster, or a machine lacks the code.
  """
  here = ray.get_runtime_context().get_node_id()
  short = capacity.shortage(program, placement, capacity.machines(), here)
  if short and timeout is None:
    raise ValueError(
      f'{short}. Ask for less with --placement, add machines, or set --ray_timeout, the seconds to '
      'wait for machines that join.'
    )
  timeout = DEFAULT_SECONDS if timeout is None else timeout
  began = time.monotonic()
  end, until = began + timeout, time.strftime('%H:%M:%S', time.localtime(time.time() + timeout))
  for with_accelerator in (True, False):
    for label, group in program.groups.items():
      resources = placement[label]
      if (resources.accelerator is not None) == with_accelerator:
        code = code_of(run_dir, resources)
        for node, create in zip(group, _creators(label, resources, len(group)), strict=True):
          ports = len(node.addresses)
          nodes.append(RayNode(label, ports, resources, code, create, timeout, requests))
    pending, announced = [node.reservation for node in nodes], False
    while pending and time.monotonic() < end and not requests:
      pending = ray.wait(pending, num_returns=len(pending), timeout=0.25)[1]
      if pending and not announced and time.monotonic() > began + _ANNOUNCE_SECONDS:
        announced = True
        late = [node.label for node in nodes if node.reservation in pending]
        what = _waits_for(late, program, placement, short)
        streams.say(f'waiting until {until} (--ray_timeout) for {what}', out or sys.stderr)
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


def _waits_for(
  labels: Sequence[str], program: lp.Program, placement: Mapping[str, Resources], short: str
) -> str:
  """Returns what the nodes of these groups, as many as are named, wait for."""
  if short:
    return f'machines to join the cluster, because {short}'
  label = _hardest(labels, placement)
  size = len(program.groups[label])
  return (
    f'Ray to start a worker for each of {len(labels)} nodes; group {label!r} needs '
    f'{capacity.demand(label, placement[label], size)}, and {capacity.free()}'
  )


def code_of(run_dir: str, resources: Resources) -> supervisor.Code:
  """Returns the code that a machine must have to run a node of a group."""
  for module in BY_VALUE:
    cloudpickle.register_pickle_by_value(module)
  return supervisor.Code(
    python=binding.interpreter_of(resources),
    version='' if resources.python else '{}.{}'.format(*sys.version_info[:2]),
    root=ROOT,
    # Importing Ray puts its own copies of other packages first on the path.
    variables=binding.import_variables(
      resources, os.path.join(os.path.dirname(ray.__file__), 'thirdparty_files')
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
  return [
    functools.partial(actor.options(**o, max_concurrency=8).remote, f'{label}/{index}')
    for index, o in enumerate(options)
  ]


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
  labels: Sequence[str], program: lp.Program, placement: Mapping[str, Resources], timeout: float
) -> NoReturn:
  """Raises the ValueError that names a group without a place, and the cluster's resources.

  Args:
    labels: groups of the nodes without a place.
    program: the graph.
    placement: resources of each group.
    timeout: seconds that Ray has had.
  """
  label = _hardest(labels, placement)
  size = len(program.groups[label])
  claims = reservation.amounts(reservation.options(label, placement[label]))
  raise ValueError(
    f'group {label!r} needs {capacity.demand(label, placement[label], size)}, and after {timeout:g} s '
    f'Ray has no place ready for {labels.count(label)} of its {size}; {capacity.free(claims)}. '
    'Ask for less with --placement, add machines, or raise --ray_timeout.'
  )


def _hardest(labels: Sequence[str], placement: Mapping[str, Resources]) -> str:
  """Returns a group that fits on no machine of the cluster, before one that may only be late."""
  present = capacity.machines()

  def fits(label: str) -> bool:
    claims = reservation.amounts(reservation.options(label, placement[label]))
    return capacity.has_room(claims, placement[label], present)

  return min(labels, key=fits)
