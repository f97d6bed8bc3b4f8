"""The Ray actor that supervises one node on the machine that Ray chose for it.

The node is a separate process that does not use Ray. The actor starts and signals it, and forwards its
output and exit code. `launchers.ray.machines` sends this module and `launchers.child_process` by value,
so that the actor can report what a machine without the code lacks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping

from launchers import certificate, child_process, disk_space, guard, heartbeat
from nodes.runtime import listening

STOP_FILE_VARIABLE = 'LAUNCHPOD_STOP_FILE'


@dataclasses.dataclass(frozen=True)
class FileStopper:
  """Stops the program; `lp.stop()` calls it in a node. The node's supervisor polls for a file."""

  def __call__(self, mark_as_completed: bool = False) -> None:
    """Creates the file."""
    open(os.environ[STOP_FILE_VARIABLE], 'w').close()


@dataclasses.dataclass(frozen=True)
class Code:
  """The code that every machine must have at the same paths.

  Attributes:
    python: path of the interpreter.
    version: its major and minor version, as in '3.12'; empty for any.
    root: the directory that contains `launchers`.
    variables: environment variables by which it finds the code and its packages.
    run_dir: the run directory.
  """

  python: str
  version: str
  root: str
  variables: Mapping[str, str]
  run_dir: str


@dataclasses.dataclass(frozen=True)
class Place:
  """The machine and ports of a node.

  Attributes:
    machine: host name.
    ip: IP address, as known to Ray.
    ray_node_id: Ray's id of the machine.
    ports: free ports, reserved for the node.
    problem: the predicate of a sentence about what the machine lacks; empty if nothing.
    shares_run_dir: whether the run directory exists on the machine.
  """

  machine: str
  ip: str
  ray_node_id: str
  ports: list[int]
  problem: str
  shares_run_dir: bool


@dataclasses.dataclass(frozen=True)
class PollReply:
  """The reply to a poll: the state of a node.

  Attributes:
    output: new output.
    offset: bytes of output that the caller has with it, or that are left out.
    stop_requested: whether the node has called `lp.stop()`.
    exit_code: None while it runs or has more output; see `child_process.NodeProcess.exit_code`.
    beat: its latest heartbeat.
    age: age of the heartbeat in seconds.
    stopped: whether a signal such as SIGSTOP has stopped its process.
  """

  output: bytes
  offset: int
  stop_requested: bool
  exit_code: int | None
  beat: heartbeat.Beat | None
  age: float
  stopped: bool = False


class Supervisor:
  """Supervises one node. Threads of the actor call its methods concurrently."""

  def __init__(self, name: str):
    """Initialises the supervisor of a node, whose name Ray's dashboard shows."""
    self._name = name

  def __repr__(self) -> str:
    return self._name

  def reserve(self, num_ports: int, code: Code) -> Place:
    """Checks the machine and reserves ports; returns the place."""
    import ray

    self._code = code
    self._running = threading.Event()
    self._sockets = listening.bind_ports(num_ports)
    return Place(
      machine=os.uname().nodename,
      ip=ray.util.get_node_ip_address(),
      ray_node_id=ray.get_runtime_context().get_node_id(),
      ports=[s.getsockname()[1] for s in self._sockets],
      problem=self._problem(),
      shares_run_dir=os.path.isdir(code.run_dir),
    )

  def start(self, name: str, payload: bytes, variables: Mapping[str, str], pem: bytes) -> None:
    """Starts the node.

    Its files are in a temporary directory, which is removed whatever ends this actor.

    Args:
      name: file name that identifies the node in a process list.
      payload: its pickled function.
      variables: added to those of the machine and to those that Ray sets for the actor's devices.
      pem: the key and the certificate of the run.
    """
    code, directory = self._code, tempfile.mkdtemp(prefix='launchpod-')
    self._guard = guard.Guard(code.python, code.variables['PYTHONPATH'], code.root, directory)
    self._path = os.path.join(directory, f'{name}.pkl')
    with open(self._path, 'wb') as f:
      f.write(payload)
    self._stop_file = os.path.join(directory, 'stop')
    self._output = tempfile.TemporaryFile()  # noqa: SIM115  unnamed, so that no file is left over
    self._reclaimer = disk_space.Reclaimer(self._output.fileno())
    self._certificate = certificate.in_memory(pem)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(('RAY_', 'PYTHON'))}
    self._environment = {
      **inherited,
      **variables,
      **certificate.variable(self._certificate),
      **code.variables,
      STOP_FILE_VARIABLE: self._stop_file,
    }
    for s in self._sockets:
      s.close()
    self._run()

  def restart(self, variables: Mapping[str, str]) -> None:
    """Restarts the node after its exit, with further variables. New output is appended."""
    self._running.clear()
    self._environment |= variables
    self._run()

  def _run(self) -> None:
    ready, exited = threading.Event(), threading.Event()

    def run() -> None:
      # A process dies with the thread that started it, so this thread waits for the process.
      try:
        self._process = child_process.NodeProcess(
          self._code.python,
          self._path,
          self._environment,
          self._output,
          self._guard.mark(),
          self._code.root,
        )
        with contextlib.suppress(PermissionError):
          os.setpriority(os.PRIO_PROCESS, self._process.pid, 0)  # Ray's workers have niceness 15.
        self._running.set()
      finally:
        ready.set()
      self._process.wait()
      exited.set()

    threading.Thread(target=run, name='node', daemon=True).start()
    ready.wait()
    if not self._running.is_set():
      raise RuntimeError(f'{self._code.python} could not be started')
    self._exited = exited

  def poll(self, offset: int, seconds: float) -> PollReply:
    """Waits for output, a stop request or the exit of the node; returns its state.

    Args:
      offset: `offset` of the previous reply, 0 at first.
      seconds: longest wait.
    """
    self._reclaimer.reclaim(offset)
    end = time.monotonic() + seconds
    while True:
      exited = self._exited.is_set()
      output, read_to = disk_space.read(self._output.fileno(), offset)
      stop = os.path.exists(self._stop_file)
      if output or stop or exited or time.monotonic() > end:
        code = self._process.exit_code() if exited and not output else None
        beat, stopped = self._process.beat(), self._process.is_stopped()
        return PollReply(output, read_to, stop, code, *beat, stopped)
      self._exited.wait(0.1)

  def send(self, number: int) -> None:
    """Signals the node; waits up to 10 seconds for its start."""
    self._running.wait(10)
    self._process.send(number)

  def close(self) -> None:
    """Kills the node if it still runs and removes its files."""
    if hasattr(self, '_process'):
      self._process.send(signal.SIGKILL)
      self._exited.wait(2)
    if hasattr(self, '_guard'):
      self._guard.close()

  def _problem(self) -> str:
    code = self._code
    if not os.access(code.python, os.X_OK):
      return f'has no interpreter {code.python}'
    if not os.path.exists(os.path.join(code.root, 'launchers', 'node_entry.py')):
      return f'has no copy of the code in {code.root}'
    probe = 'import sys, launchers.node_entry; print("%d.%d" % sys.version_info[:2])'
    environment = {**code.variables, 'PATH': os.environ.get('PATH', '')}
    done = subprocess.run(
      [code.python, '-c', probe], cwd=code.root, env=environment, capture_output=True, text=True
    )
    if done.returncode:
      last = (done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]
      return f'cannot import the code in {code.root} with {code.python} ({last})'
    if code.version and done.stdout.strip() != code.version:
      return (
        f'has Python {done.stdout.strip()} as {code.python}, where the launcher has {code.version}'
      )
    return ''
