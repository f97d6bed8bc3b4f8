"""Parsing of the command line before its flags are defined."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from environments import user_file
from programs.options import config_file
from rundir import run_directory


def own_program(argv: Sequence[str]) -> str:
  """Returns the user's own program named by the command line, --config or the run to resume; else ''.

  Args:
    argv: the command line.

  Raises:
    ValueError: if --config cannot be read, or the program file of the resumed run is missing; one
      sentence.
  """
  name = _last(argv, 'program') or config_file.flag_of(_last(argv, 'config'), 'program')
  resumed = _last(argv, 'resume')
  if not name and resumed:
    name = run_directory.program_of(resumed)
    try:
      user_file.carried(name)
    except ValueError as error:
      raise ValueError(f'--resume={resumed} needs its program: {error}') from error
  return name if user_file.is_spec(name) else ''


def own_agent(argv: Sequence[str]) -> str:
  """Returns the user's own agent named by the command line, --config or the run to resume; else ''.

  Args:
    argv: the command line.

  Raises:
    ValueError: if --config cannot be read; one sentence.
  """
  name = _last(argv, 'agent') or config_file.flag_of(_last(argv, 'config'), 'agent')
  resumed = _last(argv, 'resume')
  if not name and resumed:
    name = str(run_directory.config_of(resumed).get('agent', ''))
  return name if user_file.is_spec(name) else ''


def expanded(argv: Sequence[str]) -> list[str]:
  """Returns the command line with the flags of --config before its own, which therefore win.

  With --seeds the seed in the file, that of another run, is left out.

  Raises:
    ValueError: as `config_file.words` does.
  """
  path = _last(argv, 'config')
  words = config_file.words(path) if path else []
  if _last(argv, 'seeds'):
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


def _last(argv: Sequence[str], flag: str) -> str:
  """Returns the last value of a flag on the command line, as --flag=value or --flag value; else ''."""
  value = ''
  for word, following in zip(argv, [*argv[1:], ''], strict=True):
    if word == '--':
      break
    name, equals, text = word.partition('=')
    if name in (f'--{flag}', f'-{flag}'):
      value = text if equals else following
  return value
