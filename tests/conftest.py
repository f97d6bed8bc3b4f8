"""Markers, the order of files, the shared compilation cache, and programs under test."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys

import pytest

# Fixtures import their modules lazily: `make newest` has no Launchpad.

# A test that takes one of these trains a whole program.
_TRAINING_FIXTURES = {'train', 'start_program', 'finished_run'}
_LONG = ('program', 'cluster')
_MOST_COMPILED_BYTES = 2 << 30


def have_children_obey_signals():
  """Has processes that tests start obey the signals that this process ignores, as under nohup.

  A process hands ignored signals on to its children, but not handlers. This one still ignores them.
  """
  for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
      signal.signal(number, lambda number, frame: None)


def pytest_configure(config):
  """Shares one XLA compilation cache among workers, processes that tests start, and later sessions.

  Most of the time of most tests is compilation, and a change leaves most programs as they were. The
  directory is where pytest's own cache is, so that `--cache-clear` empties it. This is before any test
  imports JAX, which reads the variables once.
  """
  have_children_obey_signals()
  os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
  if 'JAX_COMPILATION_CACHE_DIR' not in os.environ:
    directory = config.rootpath / '.pytest_cache' / 'd' / 'compiled'
    directory.mkdir(parents=True, exist_ok=True)
    _forget_oldest(directory)
    os.environ['JAX_COMPILATION_CACHE_DIR'] = str(directory)


def _forget_oldest(directory):
  """Deletes the compiled programs that were used the longest ago, until the others are few enough.

  JAX's own limit would read the whole directory whenever it adds a file.
  """
  found = sorted(
    (entry.stat().st_atime, entry.stat().st_size, entry.path) for entry in os.scandir(directory)
  )
  excess = sum(size for _, size, _ in found) - _MOST_COMPILED_BYTES
  for _, size, path in found:
    if excess <= 0:
      break
    with contextlib.suppress(FileNotFoundError):  # Another session may have been quicker.
      os.remove(path)
    excess -= size


def pytest_itemcollected(item):
  """Marks tests that train, programs by their direct and indirect fixtures, and other slow ones."""
  if _TRAINING_FIXTURES & set(getattr(item, 'fixturenames', ())):
    item.add_marker(pytest.mark.program)
  if item.get_closest_marker('trains') or 'other_python' in getattr(item, 'fixturenames', ()):
    item.add_marker(pytest.mark.slow)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
  """Moves files with long tests to the front, so that workers end at about the same time."""
  long = {item.path for item in items if any(item.get_closest_marker(name) for name in _LONG)}
  items.sort(key=lambda item: item.path not in long)


@pytest.fixture(autouse=True)
def quick_compilation(request):
  """Has JAX compile with few optimizations in this process: most tests compile much and compute little.

  Tests marked `trains` compile as programs do for users.
  """
  jax = sys.modules.get('jax')  # Where it is not imported, nothing is compiled.
  if jax is not None:
    jax.config.update(
      'jax_disable_most_optimizations', not request.node.get_closest_marker('trains')
    )


@pytest.fixture(scope='session')
def session_directory(tmp_path_factory):
  """Returns a directory that all workers of this pytest session share."""
  directory = tmp_path_factory.getbasetemp()
  return directory.parent if 'PYTEST_XDIST_WORKER' in os.environ else directory


@pytest.fixture(scope='session')
def other_python(session_directory):
  """Returns the interpreter of an environment of another Python, with Gym and without JAX."""
  from tests import other_python

  return other_python.build(session_directory / 'other-python', 'gym==0.26.2')


@pytest.fixture
def train():
  """Returns `programs_under_test.launch`, which trains a program to its end."""
  from tests.programs_under_test import launch

  return launch


@pytest.fixture
def start_program(tmp_path):
  """Yields a function from flags to a started `RunningProgram`; kills the programs at the end.

  The run directory is `tmp_path / 'run'`, unless the flags resume a run. `small` are flags of a small
  program; by default it has actors.
  """
  from benchmarks.running import RunningProgram
  from tests.programs_under_test import ENVIRONMENT, SMALL

  programs = []

  def start(*flags, small=SMALL):
    run_dir = str(tmp_path / 'run')
    if not any(flag.startswith('--resume') for flag in flags):
      flags = (*small, f'--run_dir={run_dir}', *flags)
    programs.append(RunningProgram(run_dir, *flags, environment=ENVIRONMENT))
    return programs[-1]

  yield start
  for program in programs:
    program.kill()


@pytest.fixture(scope='session')
def finished_run(session_directory):
  """Returns the directory of a short run of Sebulba on Catch, trained once for all workers.

  `finished.txt` beside it has the stdout of launch.py. Tests must not change either.
  """
  from tests.programs_under_test import SMALL, launch

  run_dir, printed = session_directory / 'finished', session_directory / 'finished.txt'
  with open(session_directory / 'finished.lock', 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not printed.exists():
      options = ('--checkpoint_period=0.2', '--video_period=1000')
      process = launch(*SMALL, *options, f'--run_dir={run_dir}')
      assert process.returncode == 0, process.stderr
      printed.write_text(process.stdout)
  return run_dir
