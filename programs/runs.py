"""A run: new, from the flags; or earlier, from its run directory, resumed or as recorded."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from agents import options
from agents.options import check_numbers
from environments import options as env_options
from environments import user_file
from programs import registry
from programs.estimates import expected, with_decay
from programs.options import agent_choice, flags
from programs.options.changes import (
  check_changes,
  check_items,
  check_types,
  keep,
  with_newer_options,
)
from programs.options.configs import check, choose, make_config, resolve
from rundir import learners, run_directory, run_end
from rundir.checkpoints import UnusableCheckpoint


@dataclasses.dataclass(frozen=True)
class Run:
  """A program with its options.

  Attributes:
    program, module: the program's name and module.
    given: the options that the user set.
    config: every option, checked.
  """

  program: str
  module: Any
  given: dict[str, Any]
  config: Any


def new_run(program: str) -> Run:
  """Returns the run that the flags describe; its directory is not created yet.

  Args:
    program: its name.

  Raises:
    ValueError: if the flags do not fit together; one sentence.
  """
  program = user_file.absolute(program)
  module, given = registry.load(program), flags.given()
  if not registry.learns(module):
    return Run(program, module, given, module.make_config(given))
  return Run(program, module, given, make_config(module, given))


def resumed_run(path: str, program: str, lock: bool = True) -> Run:
  """Returns an earlier run with the changes that the flags make.

  Args:
    path: the run directory.
    program: the value of --program; '' if not given.
    lock: whether to lock the directory for this process; False to leave it as it is.

  Raises:
    ValueError: if the run cannot be resumed, or not with these flags; one sentence.
  """
  path, record = run_directory.reopen(path, lock)
  if user_file.absolute(program) not in ('', record.program):
    raise ValueError(
      f'--resume={path} is a run of --program={record.program}; leave --program out.'
    )
  module, changes = _learning(record.program, f'--resume={path}'), flags.given()
  recorded = _options(module, record, f'--resume={path}')
  agent = agent_choice.recorded(module, record.config, changes)
  given = record.given | changes
  config = keep(recorded, choose(module, given | agent), changes)
  check_numbers(config)
  undecayed, config = config, with_decay(config)
  # Older records store a different seed after each resume.
  began = {'seed': choose(module, record.given | agent).run.seed, 'run_dir': path}
  if run_directory.absolute(config.run.run_dir) == path:
    began['run_dir'] = config.run.run_dir
  check_changes(recorded | agent | began, config, changes)
  check(module, config)
  check_items(resolve(module, recorded), config)
  try:
    counts = learners.counts(path)
  except UnusableCheckpoint as error:
    raise ValueError(
      f'--resume={path} cannot continue: {str(error).rstrip(".")}; start a new run.'
    ) from error
  if not counts:
    raise ValueError(
      f'--resume={path} has no checkpoint yet; start a new run, in another --run_dir '
      'or with this one removed.'
    )
  with_checkpoint = learners.num_with_checkpoint(path)
  for several, name in ('num_peers', 'peers'), ('num_members', 'members'):
    if with_checkpoint < (number := options.value(config, several, 1)):
      raise ValueError(
        f'--resume={path} has checkpoints of {with_checkpoint} of its {number} {name}, and the others '
        'would begin again; start a new run.'
      )
  # Without a summary, the final evaluation is missing.
  evaluated = run_end.read_summary(path) is not None
  if counts['actor_steps'] >= config.run.num_steps and evaluated:
    raise ValueError(
      f'--resume={path} has done its {config.run.num_steps} actor_steps; raise --num_steps to continue.'
    )
  if _updates(config) != _updates(config, recorded.get('num_replicas', 1)):
    config, unset = with_decay(undecayed, counts), options.flatten(undecayed)
    # Given from now on: from the options alone, the end of the decay could not be computed again.
    given = given | {n: v for n, v in options.flatten(config).items() if v != unset[n]}
  # Counting resumes gives the actors new seeds, so they do not replay the first episodes.
  config = options.replace(config, run_dir=path, resumes=len(record.commands))
  return Run(record.program, module, given, config)


def _updates(config: Any, num_replicas: int = 0) -> int:
  """Returns the expected updates of a whole run, with another number of replicas if it is given."""
  if num_replicas and options.value(config, 'num_replicas', 0):
    config = options.replace(config, num_replicas=num_replicas)
  run = expected(config)
  return run.updates if run is not None else 0


def _learning(program: str, run: str) -> Any:
  """Returns the module of a recorded program.

  Args:
    program: its name.
    run: the run, in words; begins the sentence of an error.

  Raises:
    ValueError: if the program is a user's own Launchpad program; one sentence.
  """
  if program in registry.PROGRAMS or user_file.is_spec(program):
    module = registry.load(program)
    if registry.learns(module):
      return module
  raise ValueError(
    f'{run} is a run of the Launchpad program {user_file.title(program)}, which has no checkpoints or '
    'parameters that Launchpod knows; start its command again, with another run directory.'
  )


@contextlib.contextmanager
def _this_version(run: str) -> Iterator[None]:
  """Turns an error into a sentence that begins with the run, in words."""
  try:
    yield
  except (ValueError, TypeError) as error:
    raise ValueError(f'{run} is a run of another version of Launchpod: {error}') from error


def _options(module: Any, record: run_directory.Record, run: str) -> dict[str, Any]:
  """Returns the options of a recorded run, its agent and those that its version lacked included.

  Args:
    module: the program's module.
    record: the record.
    run: the run, in words; begins the sentence of an error.

  Raises:
    ValueError: if an option has a value of another type, or the agent is unknown; one sentence.
  """
  with _this_version(run):
    agent = agent_choice.recorded(module, record.config, {})
    _, variant = agent_choice.chosen(module, agent)
    for values in (record.given, record.config):
      check_types(values, variant.defaults)
    found = with_newer_options(record.config | agent, variant.defaults)
  if found['env'].startswith('gymnasium:') and not record.images_stay:
    found['env_options'] = env_options.merge('flatten=true', found['env_options'])
  return found


def recorded_run(path: str) -> Run:
  """Returns a run as it was last launched, for inspection; it may still be running.

  Raises:
    ValueError: if the directory does not hold a run of this version; one sentence.
  """
  record = run_directory.read_record(path)
  module = _learning(record.program, path)
  recorded = _options(module, record, path)
  with _this_version(path):
    config = resolve(module, recorded)
  # Presets of today may have other options of the environment.
  if 'env_options' in record.config:
    config = options.replace(config, env_options=recorded['env_options'])
  return Run(record.program, module, record.given, config)
