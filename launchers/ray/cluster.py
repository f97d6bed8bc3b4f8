"""Runs a graph on a Ray cluster, each group on machines with the resources that it needs.

Ray chooses the machines and carries the messages between them and the launcher. The nodes are plain
processes that use Courier and Reverb, as under the local launcher. Each node has one
`launchers.ray.supervisor.Supervisor` actor, which holds the node's resources. Order of the start: every
supervisor is placed and reserves ports; addresses are bound; the nodes start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import launchpad as lp
import ray
from ray._private import services
from ray._private.authentication import authentication_token_setup as token

from environments import user_file
from environments.interpreters import ROOT
from launchers import binding, certificate, stop_requests, streams, supervise
from launchers.placement import Resources, environment_variables
from launchers.ray import capacity, machines, reservation, supervisor
from launchers.ray.node import RayNode, first_line
from rundir import files

_SLOW_SECONDS = 2.0
# XLA variables that are copied from the launcher to the nodes, in addition to the machines' own.
_FORWARDED = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS')


@contextlib.contextmanager
def connection(address: str) -> Iterator[None]:
  """Connects to a running cluster.

  Args:
    address: host:port of its head, or 'auto' for the cluster of this machine.

  Raises:
    ValueError: if no cluster is found; one sentence.
  """
  advice = (
    'start one with "ray start --head", or join one with "ray start --address=host:port", on this '
    'machine; see "ray status"; one with a token needs that here too, in ~/.ray/auth_token or '
    'RAY_AUTH_TOKEN'
  )
  # `ray start` looks for a token; `ray.init` joins a cluster without looking.
  logging.getLogger(token.__name__).setLevel(logging.ERROR)
  token.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
  if '://' in address:
    raise ValueError(
      f'--ray_address={address} is a Ray client address, through which nodes cannot reach the '
      'launcher; run launch.py on a machine of the cluster with --ray_address=auto.'
    )
  try:
    found = services.canonicalize_bootstrap_address_or_die(address)
    host, _, port = found.rpartition(':')
    socket.create_connection((host, int(port)), timeout=5).close()  # Ray would retry for minutes.
    slow = f'waiting for the Ray cluster of --ray_address={address} to reply; Ctrl-C ends the wait'
    with streams.announced_if_slow(slow, _SLOW_SECONDS), _in_checkout():
      ray.init(found, log_to_driver=False, logging_level=logging.ERROR)
  except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
    raise ValueError(
      f'--ray_address={address}: no Ray cluster of which this machine is part '
      f'({first_line(error)}); {advice}.'
    ) from error
  try:
    yield
  finally:
    ray.shutdown()


@contextlib.contextmanager
def _in_checkout() -> Iterator[None]:
  """Changes to the directory of the code: Ray's workers import first from where a driver connects."""
  with user_file.kept_directory():
    os.chdir(ROOT)
    yield


def describe(program: lp.Program, placement: Mapping[str, Resources], address: str = 'auto') -> str:
  """Returns what the cluster has free, and why that cannot be enough for a program, in one line.

  Raises:
    ValueError: see `connection`.
  """
  with connection(address):
    here = ray.get_runtime_context().get_node_id()
    short = capacity.shortage(program, placement, capacity.machines(), here)
    return f'{capacity.free()}{short and f"; too little, because {short}"}'


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  address: str = 'auto',
  timeout: float | None = None,
  out: IO[str] | None = None,
  callbacks: supervise.RunCallbacks = supervise.NO_CALLBACKS,
  node_timeout: float = math.inf,
) -> int:
  """Runs a program on a Ray cluster to completion, as `launchers.local.local_mp.launch` does locally.

  Each node's output is copied to `run_dir/logs/<label>-<index>.log` on this machine.
  `run_dir/nodes.json` records the machine of each node and of the launcher. Files that nodes write to
  the run directory stay on their machines, unless the machines share its file system.

  Args:
    program: the graph.
    placement: resources of each group.
    run_dir: an existing directory.
    address: address of the cluster; this machine must be part of it.
    timeout: see `machines.find`.
    out: receives reports of failures; None for stderr.
    callbacks: called while the program runs.
    node_timeout: see `supervise.supervise`.

  Returns:
    The exit code, as for the local launcher.

  Raises:
    ValueError: if there is no cluster, a group does not fit in it, or a machine lacks the code; one
      sentence. No node has been started then.
  """
  reservation.check(placement)
  with connection(address), stop_requests.collected() as asked:
    nodes: list[RayNode] = []
    try:
      if not machines.find(program, placement, run_dir, timeout, nodes, asked, out):
        return stop_requests.EXIT_CODES[asked[0]]
      with binding.starting():
        _start(program, placement, run_dir, nodes, out, callbacks.started)
      return supervise.supervise(nodes, asked, out, callbacks, node_timeout)
    finally:
      _release(nodes)


def _start(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  nodes: Sequence[RayNode],
  out: IO[str] | None,
  started: Callable[[], None],
) -> None:
  """Binds the addresses, starts every node and writes `nodes.json`."""
  groups: dict[str, list[supervisor.Place]] = {}
  for node in nodes:
    assert node.place is not None
    groups.setdefault(node.label, []).append(node.place)

  def addresses(label: str, index: int, count: int) -> list[str]:
    place = groups[label][index]
    return [f'{place.ip}:{port}' for port in place.ports]

  token, pem = binding.run_token(), certificate.new()
  payloads = os.path.join(run_dir, 'nodes')
  os.makedirs(payloads, exist_ok=True)
  tasks = binding.prepare(program, addresses, supervisor.FileStopper(), payloads)
  started()

  def write_down() -> None:
    _write_nodes_json(run_dir, {t.name: n.place for t, n in zip(tasks, nodes, strict=True)})

  def moved() -> None:
    with contextlib.suppress(OSError):  # The disk may be full.
      write_down()

  for task, node in zip(tasks, nodes, strict=True):
    # Ray has chosen the devices and set the variables that select them.
    variables = environment_variables(dataclasses.replace(placement[task.label], devices=()))
    variables |= token | {n: os.environ[n] for n in _FORWARDED if n in os.environ}
    node.start(task, binding.log_path(run_dir, task), variables, pem, moved)
  write_down()
  elsewhere = {p.machine for places in groups.values() for p in places if not p.shares_run_dir}
  if elsewhere:
    streams.say(
      f'warning: {run_dir} is not shared with {", ".join(sorted(elsewhere))}; files that '
      'nodes write to it there stay there.',
      out or sys.stderr,
    )


def _write_nodes_json(run_dir: str, places: Mapping[str, supervisor.Place | None]) -> None:
  """Writes `nodes.json`: the machines of the nodes and of the launcher."""
  record: dict[str, dict[str, Any]] = {
    name: {n: getattr(place, n) for n in ('machine', 'ip', 'ray_node_id', 'ports')}
    for name, place in places.items()
  }
  record['launcher'] = {
    'machine': os.uname().nodename,
    'ip': ray.util.get_node_ip_address(),
    'ray_node_id': ray.get_runtime_context().get_node_id(),
  }
  files.write_json(os.path.join(run_dir, 'nodes.json'), record)


def _release(nodes: Sequence[RayNode]) -> None:
  """Kills running nodes and releases the machines."""
  with contextlib.suppress(ray.exceptions.RayError, OSError):
    closed = [node.supervisor.close.remote() for node in nodes if node.started]
    if closed:
      ray.wait(closed, num_returns=len(closed), timeout=5)
  for node in nodes:
    with contextlib.suppress(ray.exceptions.RayError, OSError):
      ray.kill(node.supervisor)
