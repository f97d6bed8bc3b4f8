"""Checks that one machine can run a program."""

from __future__ import annotations

import itertools
import os
import resource
from collections.abc import Mapping

import launchpad as lp

from launchers.placement import Resources

# Nodes seldom keep a core busy, so only a demand above this multiple of the cores is too high.
_CROWDED = 8
_OTHER_FILES = 200  # Of the launcher, besides one for each node.


def check(program: lp.Program, placement: Mapping[str, Resources], one_process: bool) -> None:
  """Checks that a program can run on one machine.

  Args:
    program: the graph.
    placement: resources of each group.
    one_process: whether its nodes are threads of one process.

  Raises:
    ValueError: if it cannot; one sentence that names the group.
  """
  for label, resources in placement.items():
    if resources.one_job and one_process:
      raise ValueError(
        f'each node of group {label!r}, one for each of --num_replicas, needs a process of its own; '
        'use --lp_launch_type=local_mp.'
      )
    if resources.one_job and resources.accelerator_kind == 'tpu':
      raise ValueError(
        f'each node of group {label!r}, one for each of --num_replicas, needs a TPU host of its own; '
        'use a --launcher for several machines.'
      )
  for label, nodes in program.groups.items():
    if len(nodes) > 1 and placement[label].accelerator_kind == 'tpu' and not one_process:
      raise ValueError(
        f'the {len(nodes)} nodes of group {label!r} would open the same TPU chips, which only one '
        'process can; use a --launcher for several machines, or a single node.'
      )
  tpus = [(k, set(r.devices)) for k, r in placement.items() if r.accelerator_kind == 'tpu']
  for (one, chips), (other, others) in itertools.combinations(tpus, 2):
    if not chips or not others or chips & others:
      raise ValueError(
        f'groups {one!r} and {other!r} would open the same TPU chips, which only one process can; list '
        'devices of its own for each in --placement, or use a --launcher for several machines.'
      )


def check_files(program: lp.Program) -> None:
  """Raises ValueError, one sentence, if this process may not open a file for each node."""
  count = sum(map(len, program.groups.values()))
  _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
  if most != resource.RLIM_INFINITY and count + _OTHER_FILES > most:
    raise ValueError(
      f'the launcher has a file open for each of the {count:,} nodes, and may open {most:,}: raise the '
      'hard limit (ulimit -Hn), or lower --num_actors.'
    )


def crowding(program: lp.Program, placement: Mapping[str, Resources]) -> str:
  """Returns a warning if this machine has far too few cores for the program's processes, else ''."""
  cores = len(os.sched_getaffinity(0))
  asked = sum(placement[label].cpus * len(nodes) for label, nodes in program.groups.items())
  if asked <= _CROWDED * cores:
    return ''
  return (
    f'the nodes ask for {asked:g} cores, of which this machine has {cores}; they may start and run '
    'slowly: lower --num_actors or --envs_per_actor.'
  )
