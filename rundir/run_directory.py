"""The run directory: its record, launcher and restarts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from rundir import (
  directory_lock,
  files,
  learners,
  one_line,
  option_names,
  reading,
  run_end,
  secrets,
  versions,
)

_RECORD = 'config.json'
_TYPES = {'program': str, 'given': dict, 'config': dict, 'commands': list, 'versions': dict}
_PROBE = '.writable'  # Left over where the disk was full.
UNUSED = {directory_lock.FILE, _PROBE}  # What may be in a directory that no run has used.
_RESTARTS = 'restarts.csv'
_LAUNCHER = 'launcher.json'
# What launch.py and the engines write before the first node starts, besides the nodes' payloads.
_BEFORE_THE_START = {
  *(_RECORD, directory_lock.FILE, 'graph.json', 'graph.md', 'graph.svg', 'params/initial.msgpack'),
  *(_LAUNCHER, 'slurm.sh'),
}


def default_path(program: str, env: str) -> str:
  """Returns a new path under `runs/`, named by program, environment, time and process id.

  Args:
    program: title of the program.
    env: title of the environment; '' for a program without one.
  """
  name = re.sub(r'[^A-Za-z0-9]+', '-', f'{program}-{env}').strip('-')
  return os.path.join('runs', f'{name}-{time.strftime("%Y%m%d-%H%M%S")}-{os.getpid()}')


def absolute(path: str) -> str:
  """Returns the absolute path of a user-supplied directory; expands `~`."""
  return os.path.abspath(os.path.expanduser(path))


def create(path: str, shared: bool = False) -> str:
  """Creates the directory and locks it for this process; returns its absolute path.

  Args:
    path: of the directory.
    shared: whether other nodes of the run may already have written to it.

  Raises:
    ValueError: if it is not empty, locked or not writable, or its path does not fit on one line.
  """
  path = absolute(path)
  one_line.check('--run_dir=', path)
  try:
    os.makedirs(path, exist_ok=True)
    if not shared:
      check_unused(path)
    directory_lock.take(path)
    with open(os.path.join(path, _PROBE), 'w') as probe:
      probe.write('yes')
    os.remove(probe.name)
  except BlockingIOError as error:
    raise ValueError(
      f'--run_dir={path} is taken by another launch.py; name a new directory.'
    ) from error
  except OSError as error:
    raise ValueError(f'--run_dir={path} cannot be written: {error.strerror}.') from error
  return path


def check_unused(path: str) -> None:
  """Raises ValueError, one sentence, if a path is not that of a directory for a new run.

  Args:
    path: absolute; it need not exist.
  """
  try:
    found = set(os.listdir(path)) - UNUSED
  except FileNotFoundError:
    return
  except OSError as error:
    raise ValueError(f'--run_dir={path} cannot be read: {error.strerror}.') from error
  if found:
    goes_on = _is_run(path) and has_checkpoints(path)
    advice = f'; --resume={path} resumes that run' if goes_on else ''
    raise ValueError(f'--run_dir={path} is not empty; name a new directory{advice}.')


def create_or_reopen(path: str) -> str:
  """Locks a new directory, or that of this run before a restart; returns its absolute path.

  Raises:
    ValueError: as `create` and `reopen` do.
  """
  return reopen(path)[0] if _is_run(path) else create(path, shared=True)


def reopen(path: str, lock: bool = True) -> tuple[str, Record]:
  """Returns the absolute path and the record of an earlier run.

  Args:
    path: the run directory.
    lock: whether to lock it for this process.

  Raises:
    ValueError: if it has no run, is still in use or not writable, or its path does not fit on one line.
  """
  path = absolute(path)
  one_line.check('--resume=', path)
  if _is_run(path):
    try:
      if lock:
        directory_lock.take(path)
      elif directory_lock.is_taken(path):
        raise BlockingIOError
    except BlockingIOError as error:
      raise ValueError(f'--resume={path}: that run is still running.') from error
    except OSError as error:
      raise ValueError(f'--resume={path} cannot be written: {error.strerror}.') from error
  try:
    return path, read_record(path)
  except ValueError as error:
    raise ValueError(f'--resume={error}') from error


def read_record(path: str) -> Record:
  """Reads the record of a run, which may still be running, with the option names of this version.

  Raises:
    ValueError: if it is not a run directory; one sentence that begins with its path.
  """
  if not _is_run(path):
    if not os.path.isdir(path):
      why = 'it is a file' if os.path.exists(path) else 'there is no such directory'
      raise ValueError(f'{path} is not the directory of a run: {why}.')
    raise ValueError(f'{path} is not the directory of a run: it has no {_RECORD}.')
  try:
    with reading.opened(os.path.join(path, _RECORD)) as f:
      text = f.read()
    if not text.strip(b'\0\n '):
      raise ValueError('it is empty; put a copy of it back, or start a new run')
    record = Record(**reading.json_object_in(text))
    for name, kind in _TYPES.items():
      if not isinstance(getattr(record, name), kind):
        raise ValueError(f'{name} is {getattr(record, name)!r}, not a {kind.__name__}')
    given, config = map(option_names.current, (record.given, record.config))
    return dataclasses.replace(record, given=given, config=config)
  except OSError as error:
    raise ValueError(f'{path}: its {_RECORD} cannot be read: {error.strerror}.') from error
  except (ValueError, TypeError) as error:
    raise ValueError(f'{path}: its {_RECORD} cannot be read: {error}.') from error


def program_of(path: str) -> str:
  """Returns the name of an earlier run's program; '' if there is no such run."""
  try:
    return str(reading.json_object(os.path.join(absolute(path), _RECORD))['program'])
  except (OSError, ValueError, LookupError):
    return ''


def config_of(path: str) -> dict[str, Any]:
  """Returns the options of a run; {} if there is no record of it."""
  try:
    return read_record(path).config
  except ValueError:
    return {}


@dataclasses.dataclass(frozen=True)
class Record:
  """The contents of `config.json`.

  Attributes:
    program: name of the program.
    given: the options that the user set, by name.
    config: every option, as resolved.
    commands: the command that started the run, and those that resumed it.
    versions: of Python and the packages that the run uses, by name.
    earlier_versions: `versions` before each change, oldest first.
    images_stay: whether an image in a nest of observations stays one by default; False for records of
      earlier versions, which made it a part of the vector.
  """

  program: str
  given: dict[str, Any]
  config: dict[str, Any]
  commands: list[list[str]]
  versions: dict[str, str]
  earlier_versions: list[dict[str, str]] = dataclasses.field(default_factory=list)
  images_stay: bool = False


def option_value(recorded: Any) -> Any:
  """Returns a recorded option as a config has it; JSON has lists for tuples."""
  return tuple(recorded) if isinstance(recorded, list) else recorded


def write_record(path: str, program: str, given: dict[str, Any], config: Mapping[str, Any]) -> str:
  """Replaces `config.json` and adds this command to its list.

  Removes the summary and the end of the earlier run, so call it after all checks. Commands are stored
  without the values of options that look like secrets. The options keep these values for `--resume`, in
  a file that only its owner may read.

  Returns:
    What has another version than before, in one sentence; '' if nothing has.

  Raises:
    ValueError: if an earlier record is invalid, see `read_record`, or the new one cannot be written.
  """
  now = versions.found()
  commands: list[list[str]] = []
  earlier: list[dict[str, str]] = []
  news = ''
  if _is_run(path):
    before = read_record(path)
    commands, earlier = before.commands, before.earlier_versions
    if changes := versions.changes(before.versions, now):
      earlier = [*earlier, before.versions]
      news = f'{path} resumes with other versions: {changes}.'
  options = dict(config)
  commands = [*commands, secrets.masked_command(sys.argv)]
  record = Record(program, given, options, commands, now, earlier, images_stay=True)
  try:
    files.write_json(
      os.path.join(path, _RECORD), dataclasses.asdict(record), _mode(options | given)
    )
  except OSError as error:
    raise ValueError(f'{path}: its {_RECORD} cannot be written: {error.strerror}.') from error
  run_end.delete(path)
  return news


def _mode(options: Mapping[str, Any]) -> int:
  """Returns the permissions of a record: only its owner reads one with secrets."""
  return 0o600 if secrets.holds_any(options) else 0o666


def delete_rejected(path: str) -> None:
  """Removes the files of a new run that could not start; its command can then be given again.

  Does nothing if a node or an earlier command has left anything.
  """
  found = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
  if not all(_is_of_start(file, path) for file in found):
    return
  if _is_run(path) and len(read_record(path).commands) > 1:
    return
  for file in found:
    os.remove(file)
  for folder in sorted((each for each, _, _ in os.walk(path) if each != path), reverse=True):
    os.rmdir(folder)


def earlier_files(path: str) -> dict[str, bytes]:
  """Returns the record of a run and the files of its end, by path; those that there are."""
  found = {}
  evaluation = os.path.join(path, run_end.FINAL_EVALUATION)
  for file in (os.path.join(path, _RECORD), evaluation, *run_end.paths(path)):
    with contextlib.suppress(FileNotFoundError), open(file, 'rb') as f:
      found[file] = f.read()
  return found


def restore(path: str, earlier: Mapping[str, bytes]) -> None:
  """Restores what `earlier_files` has returned for a run, after `write_record`."""
  for file, content in earlier.items():
    mode = 0o666
    if file == os.path.join(path, _RECORD):
      record = json.loads(content)
      mode = _mode(record['config'] | record['given'])
    # A disk without room has not taken the new record either.
    with contextlib.suppress(OSError), files.replacing(file, files.own_partial(file), mode) as f:
      f.write(content)


def _is_of_start(file: str, path: str) -> bool:
  """Returns whether a file of a run directory is written before the first node does anything."""
  name = os.path.relpath(file, path)
  folder, suffix = os.path.dirname(name), os.path.splitext(name)[1]
  payload = folder == 'nodes' and suffix == '.pkl'
  unused_log = folder == 'logs' and suffix == '.log' and not os.path.getsize(file)
  return name in _BEFORE_THE_START or payload or unused_log


def record_restart(path: str, node: str) -> None:
  """Appends a line to `restarts.csv`: the time, in `time.time()` seconds, and the node."""
  with contextlib.suppress(OSError), open(os.path.join(path, _RESTARTS), 'a') as f:
    f.write(f'{time.time():.1f},{node}\n')


def record_launcher(path: str, slurm_job: str = '') -> None:
  """Writes `launcher.json`: process id and host of the run's launcher, which is this process.

  Args:
    path: the run directory.
    slurm_job: id of the job whose batch script is this process; '' for any other launcher, which signals
      to a job do not reach.
  """
  me = {'pid': os.getpid(), 'host': os.uname().nodename, 'slurm_job': slurm_job}
  with contextlib.suppress(OSError), open(os.path.join(path, _LAUNCHER), 'w') as f:
    json.dump(me, f)


def launcher_of(path: str) -> dict[str, Any] | None:
  """Returns the contents of `launcher.json`; None if no launcher supervises the run."""
  try:
    launcher = reading.json_object(os.path.join(path, _LAUNCHER))
  except (OSError, ValueError):
    return None
  types = {'pid': int, 'host': str, 'slurm_job': str}
  valid = all(isinstance(launcher.get(name), kind) for name, kind in types.items())
  return launcher if valid and launcher['pid'] > 0 else None


def delete_launcher(path: str) -> None:
  """Removes `launcher.json` if it names this process, since a Slurm job has its own launcher."""
  launcher = launcher_of(path)
  if launcher is not None and launcher['pid'] == os.getpid():
    with contextlib.suppress(OSError):
      os.remove(os.path.join(path, _LAUNCHER))


def restarts(path: str) -> int:
  """Returns the number of node restarts in the run."""
  try:
    with reading.opened(os.path.join(path, _RESTARTS)) as f:
      return sum(1 for _ in f)
  except FileNotFoundError:
    return 0


def restart_times(path: str) -> list[tuple[float, str]]:
  """Returns the restarts of a run in order, as (`time.time()` seconds, name of the node).

  On a cluster a line also has the machine, as in 'actor/3 on worker5'.
  """
  try:
    with reading.opened(os.path.join(path, _RESTARTS)) as f:
      lines = f.read().decode().splitlines(keepends=True)
    parts = [line.partition(',') for line in lines if line.endswith('\n')]
    return [(float(seconds), node.split()[0]) for seconds, _, node in parts]
  except (FileNotFoundError, ValueError, IndexError):
    return []


def processes_path(path: str) -> str:
  """Returns the path of the file that records what the processes of a run do and use."""
  return os.path.join(path, 'processes.csv')


def _is_run(path: str) -> bool:
  return os.path.exists(os.path.join(path, _RECORD))


def has_checkpoints(path: str) -> bool:
  """Returns whether a run can be resumed: each of its learners has written a checkpoint."""
  config = config_of(path)
  several = [config.get(name, 1) for name in ('num_peers', 'num_members')]
  return learners.num_with_checkpoint(path) >= max(n if isinstance(n, int) else 1 for n in several)
