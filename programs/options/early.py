"""Parsing of the command line before its flags are defined."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from environments import user_file
from programs import registry
from programs.options import config_file
from rundir import run_directory

DEFAULT = 'sebulba'  # The program of a command line that names none.


def choice(argv: Sequence[str], default: str = DEFAULT) -> tuple[str, str]:
  """Returns the program and the agent whose options a command line may have.

  The command line names them, or --config, or the run to resume.

  Args:
    argv: the command line.
    default: the program if none is named.

  Returns:
    The program, and the agent; '' for the program's default.

  Raises:
    ValueError: if --config cannot be read, or the program file of the resumed run is missing; one
      sentence.
  """
  config, resumed = last(argv, 'config'), last(argv, 'resume')
  program = last(argv, 'program') or config_file.value_of(config, 'program')
  agent = last(argv, 'agent') or config_file.value_of(config, 'agent')
  if resumed:
    agent = agent or str(run_directory.config_of(resumed).get('agent', ''))
  if not program and resumed:
    program = run_directory.program_of(resumed)
    try:
      user_file.carried(program)
    except ValueError as error:
      raise ValueError(f'--resume={resumed} needs its program: {error}') from error
    # What is no program any more is refused when the record is read.
    known = program in registry.PROGRAMS or user_file.is_spec(program)
    program = program if known else ''
  return program or default, agent


def choice_or_all(argv: Sequence[str]) -> tuple[str, str]:
  """Returns what `choice` does; ('', '') for all programs, if their presets are to be listed."""
  if has(argv, 'presets') and not last(argv, 'program'):
    return '', ''
  return choice(argv)


def has(argv: Sequence[str], flag: str) -> bool:
  """Returns whether a command line has a flag without a value, such as --help."""
  words = argv[: argv.index('--')] if '--' in argv else argv
  return bool({f'--{flag}', f'-{flag}', f'--{flag}=true'} & set(words))


def expanded(argv: Sequence[str]) -> list[str]:
  """Returns the command line with the flags of --config before its own, which therefore win.

  With --seeds the seed in the file, that of another run, is left out.

  Raises:
    ValueError: as `config_file.words` does.
  """
  path = last(argv, 'config')
  words = config_file.words(path) if path else []
  if last(argv, 'seeds'):
    words = [word for word in words if not word.startswith('--seed=')]
  return [argv[0], *words, *argv[1:]]


def with_flagfiles(argv: Sequence[str]) -> list[str]:
  """Returns the command line with the content of --flagfile in its place.

  Raises:
    ValueError: if the file cannot be read; one sentence.
  """
  try:
    return flags.FLAGS.read_flags_from_files([*argv])
  except flags.Error as error:
    raise ValueError(f'--flagfile: {error}') from error


def last(argv: Sequence[str], flag: str) -> str:
  """Returns the last value of a flag on the command line, as --flag=value or --flag value; else ''."""
  value = ''
  for word, following in zip(argv, [*argv[1:], ''], strict=True):
    if word == '--':
      break
    name, equals, text = word.partition('=')
    if name in (f'--{flag}', f'-{flag}'):
      value = text if equals else following
  return value
