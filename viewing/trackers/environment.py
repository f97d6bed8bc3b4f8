"""Makes the virtual environment of a tracker, once, and starts exports in it.

The environment has exactly the packages that `<tracker>.txt` locks by hash, so the packages of this
project stay as they are.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from environments import entry
from rundir import user_cache

TRACKERS = ('wandb', 'mlflow')
_HERE = pathlib.Path(__file__).parent
_ROOT = _HERE.parent.parent
_STOPPING_SECONDS = 60.0
_CTRL_C = 128 + signal.SIGINT


def python(tracker: str, say: Callable[[str], None]) -> str:
  """Returns the interpreter of a tracker's environment; makes the environment if there is none.

  Args:
    tracker: of TRACKERS.
    say: receives a line before the packages are installed.

  Raises:
    ValueError: if they cannot be installed; one sentence.
  """
  lock = _HERE / f'{tracker}.txt'
  version = f'{sys.version}{sys.base_prefix}'
  digest = hashlib.sha256(lock.read_bytes() + version.encode()).hexdigest()[:12]
  place = pathlib.Path(user_cache.path(f'{tracker}-{digest}'))
  installed = str(place / 'bin' / 'python')
  if os.path.exists(installed):
    return installed
  say(f'installing {tracker} into {place}, once')
  try:
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = tempfile.mkdtemp(dir=place.parent, prefix=f'.{tracker}-')
  except OSError as error:
    raise ValueError(
      f'--to={tracker}: {place.parent} cannot be written: {error.strerror}; set XDG_CACHE_HOME.'
    ) from error
  try:
    new = os.path.join(partial, 'new')
    _uv(tracker, 'venv', '--relocatable', '--python', sys.executable, new)
    to = os.path.join(new, 'bin', 'python')
    _uv(tracker, 'pip', 'sync', '--require-hashes', '--python', to, str(lock))
    if not place.exists():  # Another process may have been faster.
      os.rename(new, place)
  finally:
    shutil.rmtree(partial, ignore_errors=True)
  return installed


def export(
  tracker: str,
  begun: Callable[[], Sequence[str]],
  is_running: Callable[[], bool],
  options: Sequence[str],
  period: float,
) -> int:
  """Exports runs, each by a process, until all have ended or a signal stops this one.

  Args:
    tracker: of TRACKERS.
    begun: returns the directories of the runs that have begun.
    is_running: returns whether more runs may begin.
    options: further flags of `viewing.trackers.export`.
    period: seconds between two calls of these functions.

  Returns:
    The first exit code that is not 0; 0 if there is none.

  Raises:
    ValueError: if the tracker's packages cannot be installed; one sentence.
    KeyboardInterrupt: after a signal, once the processes have ended.
  """
  path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get('PYTHONPATH', ''))))
  command = entry.command(
    python(tracker, lambda line: print(line, flush=True)),
    'viewing.trackers.export',
    f'--to={tracker}',
    *options,
  )
  processes: dict[str, subprocess.Popen] = {}
  try:
    while True:
      last = not is_running()  # Before `begun`, so that no run is missed.
      for run_dir in begun():
        if run_dir not in processes:
          processes[run_dir] = subprocess.Popen(
            [*command, run_dir], env={**os.environ, 'PYTHONPATH': path}, stdin=subprocess.DEVNULL
          )
      if last:
        break
      time.sleep(period)
    codes = [process.wait() for process in processes.values()]
  except KeyboardInterrupt as stop:
    if getattr(stop, 'exit_code', _CTRL_C) != _CTRL_C:  # Ctrl-C has reached them as well.
      for process in processes.values():
        process.terminate()
    for process in processes.values():
      try:
        process.wait(_STOPPING_SECONDS)
      except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()
    raise
  return next((code if code > 0 else 128 - code for code in codes if code), 0)


def _uv(tracker: str, *arguments: str) -> None:
  beside = os.path.join(os.path.dirname(sys.executable), 'uv')
  uv = beside if os.path.exists(beside) else shutil.which('uv')
  if uv is None:
    raise ValueError(f'--to={tracker}: there is no uv beside {sys.executable}; run `make check`.')
  process = subprocess.run(
    [uv, '--quiet', '--no-config', *arguments], capture_output=True, text=True
  )
  if process.returncode:
    said = ' '.join(process.stderr.split())
    raise ValueError(
      f'--to={tracker}: its packages cannot be installed; connect to a package index, which is needed '
      f'once (UV_DEFAULT_INDEX names another one): {said[:400]}'
    )
