"""Runs a graph on a Ray cluster, each group on machines that have what it needs.

Ray chooses the machines and carries what the launcher and they have to say to each other; the nodes
themselves are plain processes that talk Courier and Reverb, as under the local launcher. For each
node there is one `launchers.ray_supervisor.Supervisor` actor, which holds the node's resources. In
order: every supervisor is placed and reserves ports; addresses are bound; the nodes start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, NoReturn

import launchpad as lp
import ray
from ray import cloudpickle
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from launchers import core, process, ray_supervisor, supervise
from launchers.placement import Resources, environment_variables

TPU_COUNTS = (1, 2, 4, 8)
LOST = 255
_POLL_SECONDS = 2.0
# Variables of the launcher that tune XLA; the machines' own variables are kept beside them.
_FORWARDED = ('XLA_FLAGS', 'LIBTPU_INIT_ARGS')


def options(label: str, resources: Resources, launcher_node_id: str = '') -> dict[str, Any]:
  """Returns the options of a group's supervisor actors: what Ray sets aside for each node, and where.

  Args:
    label: the group.
    resources: of the group.
    launcher_node_id: Ray's name for the launcher's machine.

  Raises:
    ValueError: if Ray cannot set that aside; one sentence that names the group.
  """
  devices, extra = resources.device_count, dict(resources.resources)
  reserved = {'CPU': 'cpus', 'GPU': 'num_devices', 'TPU': 'num_devices', 'memory': 'memory_gb'}
  for name in extra:
    if name in reserved:
      raise ValueError(
        f'group {label!r} asks for {name} among its resources; use the field {reserved[name]}.'
      )
  if resources.accelerator_kind == 'tpu':
    if devices not in TPU_COUNTS:
      raise ValueError(
        f'group {label!r} needs {devices} TPU devices, but Ray sets aside 1, 2, 4 or 8 of a host; '
        'set num_devices with --placement.'
      )
    extra['TPU'] = devices
  result: dict[str, Any] = {'num_cpus': resources.cpus, 'resources': extra}
  if resources.accelerator == 'gpu':
    result['num_gpus'] = devices
  if resources.memory_gb:
    result['memory'] = int(resources.memory_gb * 2**30)
  if resources.labels:
    result['label_selector'] = dict(resources.labels)
  if resources.with_launcher:
    result['scheduling_strategy'] = NodeAffinitySchedulingStrategy(launcher_node_id, soft=False)
  elif resources.accelerator is None:
    result['scheduling_strategy'] = 'SPREAD'
  return result


class _RayNode:
  """A node on some machine of the cluster; a `supervise.Node`."""

  resources = Resources()  # A failure ends the program: Ray's restarts are not used yet.

  def __init__(self, label: str, supervisor: Any, requests: list[int]):
    self.label = label
    self.name = label
    self.log_path = ''
    self.supervisor = supervisor
    self._requests = requests
    self._written = 0
    self._polled: Any = None
    self._sent: Any = None
    self._code: int | None = None
    self._lost = ''

  def start(
    self, task: core.NodeTask, machine: str, log_path: str, variables: Mapping[str, str]
  ) -> None:
    """Starts the node; returns at once."""
    self.name, self.log_path = f'{task.name} on {machine}', log_path
    with open(task.payload, 'rb') as f:
      payload = f.read()
    open(log_path, 'wb').close()
    self._polled = self.supervisor.start.remote(f'{task.label}-{task.index}', payload, variables)

  @property
  def started(self) -> bool:
    return self._polled is not None

  def exit_code(self) -> int | None:
    if self._code is None and ray.wait([self._polled], timeout=0)[0]:
      try:
        self._hear(ray.get(self._polled))
      except ray.exceptions.ActorUnavailableError:
        self._poll()
      except ray.exceptions.RayActorError as error:
        self._code = LOST
        self._lost = f'was lost with its machine or its Ray worker ({_first_line(error)})'
      except ray.exceptions.RayTaskError as error:
        self._code, self._lost = LOST, f'could not be looked after ({_first_line(error.cause)})'
    return self._code

  def ending(self) -> str:
    assert self._code is not None
    return self._lost or supervise.describe_exit(self._code)

  def send(self, number: int) -> None:
    done = self._sent is None or ray.wait([self._sent], timeout=0)[0]
    if self._code is None and done:
      self._sent = self.supervisor.send.remote(int(number))

  def restart(self) -> None:
    raise NotImplementedError

  def _hear(self, news: tuple[bytes, bool, int | None] | None) -> None:
    if news is not None:
      output, stop_requested, self._code = news
      if output:
        with open(self.log_path, 'ab') as log:
          log.write(output)
        self._written += len(output)
      if stop_requested:
        self._requests.append(signal.SIGUSR1)
    if self._code is None:
      self._poll()

  def _poll(self) -> None:
    self._polled = self.supervisor.poll.remote(self._written, _POLL_SECONDS)


def _first_line(error: Any) -> str:
  return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextlib.contextmanager
def connection(address: str) -> Iterator[None]:
  """Connects to a running cluster.

  Args:
    address: host:port of its head, or 'auto' for the one that this machine is part of.

  Raises:
    ValueError: if there is none, in one sentence.
  """
  advice = (
    'start one with "ray start --head", or join one with "ray start --address=host:port", on this '
    'machine; see "ray status"'
  )
  if '://' in address:
    raise ValueError(
      f'--ray_address={address} is a Ray client address, through which nodes cannot reach the '
      'launcher; run launch.py on a machine of the cluster with --ray_address=auto.'
    )
  try:
    if address != 'auto':  # Ray itself would try for minutes.
      host, _, port = address.rpartition(':')
      socket.create_connection((host, int(port)), timeout=5).close()
    ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
  except (OSError, ValueError, RuntimeError) as error:
    raise ValueError(
      f'--ray_address={address}: no Ray cluster of which this machine is part '
      f'({_first_line(error)}); {advice}.'
    ) from error
  try:
    yield
  finally:
    ray.shutdown()


def check(placement: Mapping[str, Resources]) -> None:
  """Raises the ValueError of `options` if Ray cannot set aside what a group asks for."""
  for label, resources in placement.items():
    options(label, resources)


def launch(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  address: str = 'auto',
  timeout: float = 60.0,
  out: IO[str] = sys.stderr,
  watch: supervise.Watch = supervise.NOBODY,
) -> int:
  """Runs a program to its end, as `launchers.local.launch` does, on a Ray cluster.

  Each node's output comes to `run_dir/logs/<label>-<index>.log` on this machine, and
  `run_dir/nodes.json` says where each node and the launcher ran. What nodes write to the run
  directory themselves stays on their machines unless the machines share its file system.

  Args:
    program: the graph.
    placement: resources for each group.
    run_dir: an existing directory.
    address: of the cluster; this machine must be part of it.
    timeout: seconds that Ray has to place every node.
    out: where to report a failure.
    watch: is told what happens, and asked who is silent.

  Returns:
    The exit code, as that of the local launcher.

  Raises:
    ValueError: one sentence, if there is no cluster, or no room in it for a group, or a machine
      lacks the code. Nothing runs then.
  """
  check(placement)
  with connection(address), supervise.stop_requests() as requests:
    nodes: list[_RayNode] = []
    try:
      places = _place(program, placement, run_dir, timeout, nodes, requests)
      if places is None:
        return supervise.EXIT_CODES[requests[0]]
      _start(program, placement, run_dir, nodes, places, out, watch.started)
      code, culprit = supervise.supervise(
        nodes, requests, lambda text: print(text, file=out, flush=True), watch
      )
    finally:
      _release(nodes)
  if culprit is not None:
    supervise.report(culprit, out)
  return code


def _place(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  timeout: float,
  nodes: list[_RayNode],
  requests: list[int],
) -> list[ray_supervisor.Place] | None:
  """Has Ray place a supervisor for every node; fills `nodes`, in the order of the graph.

  Groups that need an accelerator come first, lest others take the cores of its machine.

  Returns:
    A place for each node; None if the launch was called off.
  """
  code = ray_supervisor.Code(
    python=sys.executable,
    version='{}.{}'.format(*sys.version_info[:2]),
    root=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    # Importing Ray puts its own copies of other packages first.
    python_path=core.python_path(os.path.join(os.path.dirname(ray.__file__), 'thirdparty_files')),
    run_dir=run_dir,
  )
  for module in (process, ray_supervisor):
    cloudpickle.register_pickle_by_value(module)
  actor = ray.remote(ray_supervisor.Supervisor)
  here = ray.get_runtime_context().get_node_id()
  reserved: dict[int, Any] = {}
  end = time.monotonic() + timeout
  graph = [(label, node) for label, group in program.groups.items() for node in group]
  placed: dict[int, _RayNode] = {}
  for with_accelerator in (True, False):
    for i, (label, node) in enumerate(graph):
      if (placement[label].accelerator is not None) == with_accelerator:
        # Polling, signalling and closing go on at the same time.
        supervisor = actor.options(
          **options(label, placement[label], here), max_concurrency=8
        ).remote()
        placed[i] = _RayNode(label, supervisor, requests)
        nodes.append(placed[i])
        reserved[i] = supervisor.reserve.remote(len(node.addresses), code)
    pending = list(reserved.values())
    while pending and time.monotonic() < end and not requests:
      pending = ray.wait(pending, num_returns=len(pending), timeout=0.25)[1]
    if requests:
      return None
    if pending:
      _refuse([graph[i][0] for i, ref in reserved.items() if ref in pending], placement, timeout)
  nodes[:] = [placed[i] for i in range(len(graph))]
  places = []
  for i, node in enumerate(nodes):
    try:
      place = ray.get(reserved[i])
    except ray.exceptions.ActorUnschedulableError:
      _refuse([node.label], placement, timeout)
    except ray.exceptions.RayError as error:
      raise ValueError(
        f'Ray could not start a worker for group {node.label!r}: {_first_line(error)}'
      ) from error
    places.append(place)
    if place.problem:
      raise ValueError(
        f'machine {place.machine}, which Ray chose for group {node.label!r}, {place.problem}; every '
        'machine needs the code and its environment at the same path, as on a shared file system.'
      )
  return places


def _refuse(labels: Sequence[str], placement: Mapping[str, Resources], timeout: float) -> NoReturn:
  """Raises the ValueError that says which group has no place, and what the cluster has."""
  label = labels[0]
  wanted = options(label, placement[label])
  needs = {'CPU': wanted['num_cpus'], 'GPU': wanted.get('num_gpus', 0)} | wanted['resources']
  what = [f'{amount:g} {name}' for name, amount in needs.items() if amount]
  if placement[label].memory_gb:
    what.append(f'{placement[label].memory_gb:g} GB of memory')
  what += [f'label {name}={value}' for name, value in placement[label].labels.items()]
  if placement[label].with_launcher:
    what.append("the launcher's machine")
  total, free = ray.cluster_resources(), ray.available_resources()
  names = sorted({'CPU', *needs} | {n for n in total if n in ('GPU', 'TPU')})
  has = ', '.join(f'{free.get(n, 0):g} of {total.get(n, 0):g} {n}' for n in names)
  raise ValueError(
    f'group {label!r} needs {" and ".join(what)} for each node, and Ray found no place for '
    f'{labels.count(label)} of them in {timeout:g} s; the {len(ray.nodes())} machines of the cluster '
    f'have free: {has}. Ask for less with --placement, add machines, or raise --ray_timeout.'
  )


def _start(
  program: lp.Program,
  placement: Mapping[str, Resources],
  run_dir: str,
  nodes: Sequence[_RayNode],
  places: Sequence[ray_supervisor.Place],
  out: IO[str],
  started: Callable[[], None],
) -> None:
  """Binds the addresses, starts every node and writes down where."""
  ips = {n['NodeID']: n['NodeManagerAddress'] for n in ray.nodes()}
  first: dict[str, int] = {}
  for i, node in enumerate(nodes):
    first.setdefault(node.label, i)

  def addresses(label: str, index: int, count: int) -> list[str]:
    place = places[first[label] + index]
    return [f'{ips[place.ray_node_id]}:{port}' for port in place.ports]

  with tempfile.TemporaryDirectory(prefix='launchpod-') as directory:
    tasks = core.prepare(program, addresses, ray_supervisor.FileStopper(), directory)
    started()
    for task, node, place in zip(tasks, nodes, places, strict=True):
      # Ray has chosen the devices and set the variables that show them.
      variables = environment_variables(dataclasses.replace(placement[task.label], devices=()))
      variables |= {n: os.environ[n] for n in _FORWARDED if n in os.environ}
      node.start(task, ips[place.ray_node_id], core.log_path(run_dir, task), variables)
  record: dict[str, dict[str, Any]] = {
    task.name: {
      'machine': place.machine,
      'ip': ips[place.ray_node_id],
      'ray_node_id': place.ray_node_id,
      'ports': place.ports,
    }
    for task, place in zip(tasks, places, strict=True)
  }
  here = ray.get_runtime_context().get_node_id()
  record['launcher'] = {'machine': os.uname().nodename, 'ip': ips[here], 'ray_node_id': here}
  with open(os.path.join(run_dir, 'nodes.json'), 'w') as f:
    json.dump(record, f, indent=2)
  elsewhere = {p.machine for p in places if not p.shares_run_dir}
  if elsewhere:
    print(
      f'warning: {run_dir} is not shared with {", ".join(sorted(elsewhere))}; what nodes write to it '
      'there stays there.',
      file=out,
    )


def _release(nodes: Sequence[_RayNode]) -> None:
  """Kills what still runs and gives the machines back."""
  with contextlib.suppress(ray.exceptions.RayError):
    closed = [node.supervisor.close.remote() for node in nodes if node.started]
    if closed:
      ray.wait(closed, num_returns=len(closed), timeout=5)
  for node in nodes:
    ray.kill(node.supervisor)
