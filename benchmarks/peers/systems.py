"""Starts our programs and the peers, and reads their progress."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from benchmarks import end_to_end, options
from benchmarks.peers import reports, virtual
from benchmarks.peers.settings import OURS, Settings, own_options
from benchmarks.peers.tree import Tree
from benchmarks.running import RunningProgram
from rundir import curves, node_files
from rundir.roles import LEARNER

_DRIVERS = pathlib.Path(__file__).parent / 'drivers'
_LAST_LINES = 30


@dataclasses.dataclass(frozen=True)
class Peer:
  """A peer.

  Attributes:
    driver: the script that runs the peer; its argument is the common settings in JSON.
    python: the Python version of the list of requirements.
    packages: packages of that list whose versions are shown.
    script: what the user gives the path of, where no package has its code: 'cleanba_impala.py'.
    side_by_side: whether the driver takes the common settings of `settings.Settings`.
    torsos: the networks of those settings that it can be compared with.
    whole_batches: whether it learns from one unroll of every environment at a time, in batches.
    built: package of the list that is built here; see `virtual.install`.
    ends: whether the driver ends by itself, after `num_steps` and a final evaluation.
    continuous: whether the driver has continuous actions.
  """

  driver: str
  python: str
  packages: tuple[str, ...]
  script: str = ''
  side_by_side: bool = True
  torsos: tuple[str, ...] = ('mlp', 'nature', 'impala')
  whole_batches: bool = False
  built: str = ''
  ends: bool = False
  continuous: bool = False


PEERS = {
  'sample_factory': Peer(
    'sample_factory_driver.py',
    '3.11',
    ('sample-factory', 'torch', 'gymnasium', 'ale-py', 'mujoco'),
    continuous=True,
  ),
  'rllib': Peer('rllib_driver.py', '3.11', ('ray', 'torch', 'gymnasium', 'ale-py')),
  'pufferlib': Peer(
    'pufferlib_driver.py',
    '3.11',
    ('pufferlib', 'torch', 'gymnasium', 'ale-py', 'mujoco'),
    whole_batches=True,
    continuous=True,
    built='pufferlib',
  ),
  'cleanba': Peer(
    'cleanba_driver.py',
    '3.10',
    ('jax', 'flax', 'envpool'),
    script='cleanba_impala.py',
    torsos=('nature', 'impala'),
    whole_batches=True,
  ),
  'cleanrl': Peer(
    'cleanrl_driver.py',
    '3.10',
    ('jax', 'flax', 'envpool'),
    script='ppo_atari_envpool_xla_jax_scan.py',
    torsos=('mlp', 'nature'),
    whole_batches=True,
  ),
  'stoix': Peer(
    'stoix_driver.py',
    '3.10',
    ('jax', 'flax', 'envpool'),
    script='checkout',
    torsos=('mlp', 'nature'),
    whole_batches=True,
  ),
  'purejaxrl': Peer(
    'purejaxrl_driver.py',
    '3.10',
    ('jax', 'flax', 'gymnax'),
    script='checkout',
    side_by_side=False,
    ends=True,
  ),
  'purejaxql': Peer(
    'purejaxql_driver.py',
    '3.11',
    ('jax', 'flax', 'gymnax'),
    script='checkout',
    side_by_side=False,
    ends=True,
  ),
}


class Run(Protocol):
  """A run in progress."""

  def check(self) -> None:
    """Raises AssertionError, with its last output, if the run has ended."""

  def reports(self) -> list[reports.Report]:
    """Returns the reports so far."""

  def last_words(self) -> str:
    """Returns the last output."""


class _OurRun:
  """A run of one of our programs."""

  def __init__(self, program: RunningProgram, started: float, steps_per_update: int):
    self._program = program
    self._started = started
    self._steps_per_update = steps_per_update
    self._monitor_started: float | None = None

  def check(self) -> None:
    if self._program.launcher.poll() is not None:
      raise AssertionError(f'the program ended: {self._program.end()[2]}')

  def last_words(self) -> str:
    logs = node_files.find(self._program.run_dir, node_files.LOG).values()
    return ''.join(line for path in logs for line in _lines(path)[-_LAST_LINES:])

  def reports(self) -> list[reports.Report]:
    columns = ('seconds', 'actor_steps', 'learner_steps', 'episodes')
    rows: list[tuple[float, ...]] = []
    means: dict[float, float] = {}
    for node in curves.nodes(self._program.run_dir, LEARNER)[:1]:
      rows += curves.read(self._program.run_dir, node, *columns)
      # Excludes intervals without an episode, which have no mean.
      for second, mean in curves.read(self._program.run_dir, node, 'seconds', 'episode_return'):
        means[second] = mean
    if rows and self._monitor_started is None:
      self._monitor_started = time.time() - rows[-1][0]
    returns = reports.recent_returns([(row[-1], means.get(row[0], math.nan)) for row in rows])
    offset = (self._monitor_started or 0.0) - self._started
    return [
      reports.Report(second + offset, steps, updates * self._steps_per_update, mean)
      for (second, steps, updates, _), mean in zip(rows, returns, strict=True)
    ]


class DriverRun:
  """A run of a driver."""

  def __init__(self, process: subprocess.Popen, output: str, errors: str):
    self._process = process
    self._output = output
    self._errors = errors

  def ended(self) -> bool:
    """Returns whether the driver has ended with exit code 0.

    Raises:
      AssertionError: it has ended with another exit code.
    """
    if self._process.poll():
      code = self._process.returncode
      raise AssertionError(f'the driver ended with exit code {code}:\n{self.last_words()}')
    return self._process.returncode is not None

  def check(self) -> None:
    """Raises AssertionError, with its last output, if the driver has ended."""
    if self.ended():
      raise AssertionError(f'the driver ended with exit code 0:\n{self.last_words()}')

  def reports(self) -> list[reports.Report]:
    """Returns the reports so far."""
    return reports.parse(_lines(self._output))

  def final(self) -> dict[str, Any] | None:
    """Returns the final evaluation; None if the driver has printed none."""
    return reports.final(_lines(self._output))

  def last_words(self) -> str:
    """Returns the last output."""
    lines = [line for path in (self._output, self._errors) for line in _lines(path)]
    return ''.join(lines[-_LAST_LINES:])


def _lines(path: str) -> list[str]:
  with open(path, errors='replace') as f:
    return f.readlines()


def start(
  name: str, settings: Settings, given: Mapping[str, Any], script: str, tree: Tree
) -> contextlib.AbstractContextManager[Run]:
  """Starts a system; ends it at the end of the block.

  Args:
    name: name of the system.
    settings: the common settings.
    given: further options, of our programs or of the peer's driver; others are left out or not read.
    script: path of the user's copy of a peer that is not a package.
    tree: the tree that the processes join.
  """
  if name in OURS:
    return _start_ours(name, settings, given, tree)
  return _start_peer(name, settings, given, script, tree)


@contextlib.contextmanager
def _start_ours(
  name: str, settings: Settings, given: Mapping[str, Any], tree: Tree
) -> Iterator[Run]:
  values = own_options(name, settings, given)
  started = time.time()
  with end_to_end.running(options.as_flags(name, values), tree.variables) as program:
    unrolls = values.get('num_envs', settings.batch_size)
    yield _OurRun(program, started, unrolls * settings.unroll_length)


@contextlib.contextmanager
def _start_peer(
  name: str, settings: Settings, given: Mapping[str, Any], script: str, tree: Tree
) -> Iterator[DriverRun]:
  values = {**given, **dataclasses.asdict(settings), 'script': script}
  with (
    tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory,
    start_driver(name, values, directory, tree) as run,
  ):
    yield run


@contextlib.contextmanager
def start_driver(
  name: str, given: Mapping[str, Any], directory: str, tree: Tree
) -> Iterator[DriverRun]:
  """Starts the driver of a peer; ends it, and all that it has started, at the end of the block.

  Args:
    name: of the peer; its virtual environment is installed.
    given: the driver's settings; the time of the command is added.
    directory: its working directory, where its output goes.
    tree: the tree that the processes join.
  """
  environment = {**os.environ, **tree.variables, 'RAY_USAGE_STATS_ENABLED': '0'}
  environment.pop('PYTHONPATH', None)  # It leads to our versions of packages.
  output, errors = (os.path.join(directory, name) for name in ('output.txt', 'errors.txt'))
  with open(output, 'w') as out, open(errors, 'w') as err:
    process = subprocess.Popen(
      [
        virtual.python(name),
        str(_DRIVERS / PEERS[name].driver),
        json.dumps({**given, 'started': time.time()}),
      ],
      cwd=directory,
      env=environment,
      stdin=subprocess.DEVNULL,
      stdout=out,
      stderr=err,
      start_new_session=True,
    )
  try:
    yield DriverRun(process, output, errors)
  finally:
    tree.kill()  # Before the directory is removed.
    process.wait()


def versions(name: str) -> dict[str, str]:
  """Returns the package versions of a system, by package."""
  if name in OURS:
    return {'python': sys.version.split()[0]}
  pinned = virtual.pins(virtual.requirements(name).read_text())
  peer = PEERS[name]
  return {'python': peer.python} | {package: pinned[package] for package in peer.packages}
