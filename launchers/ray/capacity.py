"""Compares what the groups of a graph ask for with the machines of the Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import launchpad as lp
import ray

from launchers.placement import Resources
from launchers.ray import reservation

_ACCURACY = 1e-4  # Of Ray's amounts.
_ALWAYS_SHOWN = ('CPU', 'GPU', 'TPU')


def machines() -> list[dict[str, Any]]:
  """Returns what `ray.nodes` says of each machine that is up."""
  return [machine for machine in ray.nodes() if machine['Alive']]


def shortage(
  program: lp.Program,
  placement: Mapping[str, Resources],
  present: Sequence[Mapping[str, Any]],
  launcher_node_id: str,
) -> str:
  """Returns why machines could not run a program even if they were idle; '' if they may be able to.

  Args:
    program: the graph.
    placement: resources of each group.
    present: see `machines`.
    launcher_node_id: Ray's id of the launcher's machine.
  """
  sums: dict[str, float] = {}
  for label, nodes in program.groups.items():
    resources, size = placement[label], len(nodes)
    bundles = _bundles(label, resources, size)
    where = [m for m in present if not resources.with_launcher or m['NodeID'] == launcher_node_id]
    apart = size if len(bundles) > 1 and resources.accelerator_kind == 'tpu' else 1
    if not has_room(bundles[0], resources, where) or (
      sum(has_room(bundles[-1], resources, [machine]) for machine in where) < apart
    ):
      asked = demand(label, resources, size)
      return f'group {label!r} needs {asked}, and {_has(present, bundles[0])} in total'
    for name, amount in (item for bundle in bundles for item in bundle.items()):
      sums[name] = sums.get(name, 0.0) + amount
  for name, amount in sums.items():
    if _total(present, name) + _ACCURACY < amount:
      size = sum(map(len, program.groups.values()))
      return (
        f'the {size} nodes of the program need {_words(name, amount)}, and {_has(present, [name])} '
        'in total'
      )
  return ''


def has_room(
  claims: Mapping[str, float], resources: Resources, present: Iterable[Mapping[str, Any]]
) -> bool:
  """Returns whether some machine, if idle, has these amounts and the labels of the group."""
  return any(
    all(machine['Resources'].get(name, 0) >= amount for name, amount in claims.items())
    and resources.labels.items() <= machine['Labels'].items()
    for machine in present
  )


def demand(label: str, resources: Resources, size: int) -> str:
  """Returns what a group asks for, as in '1 CPU and 4 TPU for each node'."""
  asked = ' and '.join(resources.requests()) or 'no resources'
  if reservation.is_gang(resources, size):
    return f'{asked} on {size} machines at once'
  return f'{asked} for each node'


def free(claims: Iterable[str] = ()) -> str:
  """Returns what is free on the cluster, as in 'the 2 machines of the cluster have free: 0 of 4 CPU'.

  Args:
    claims: Ray's names of resources to show besides CPUs, GPUs and TPUs.
  """
  total, now = ray.cluster_resources(), ray.available_resources()
  shown = (_words(n, now.get(n, 0.0), total.get(n, 0.0)) for n in _shown(claims, total))
  return f'{_machines(machines())} free: {", ".join(shown)}'


def _bundles(label: str, resources: Resources, size: int) -> list[dict[str, float]]:
  """Returns the amounts that each node of a group claims."""
  if reservation.is_gang(resources, size):
    return reservation.gang(label, resources, size)['bundles']
  return [reservation.amounts(reservation.options(label, resources))] * size


def _has(present: Sequence[Mapping[str, Any]], claims: Iterable[str]) -> str:
  total = {name: _total(present, name) for name in {*_ALWAYS_SHOWN, *claims}}
  shown = (_words(name, total[name]) for name in _shown(claims, total))
  return f'{_machines(present)} {", ".join(shown)}'


def _machines(present: Sequence[object]) -> str:
  if len(present) == 1:
    return 'the 1 machine of the cluster has'
  return f'the {len(present)} machines of the cluster have'


def _shown(claims: Iterable[str], total: Mapping[str, float]) -> list[str]:
  return sorted({'CPU', *claims, *(name for name in _ALWAYS_SHOWN if total.get(name))})


def _total(present: Iterable[Mapping[str, Any]], name: str) -> float:
  return sum(machine['Resources'].get(name, 0.0) for machine in present)


def _words(name: str, amount: float, of: float | None = None) -> str:
  scale, unit = (2**30, 'GB of memory') if name == 'memory' else (1, name)
  number = f'{round(amount / scale, 2):g}'
  return f'{number} of {round(of / scale, 2):g} {unit}' if of is not None else f'{number} {unit}'
