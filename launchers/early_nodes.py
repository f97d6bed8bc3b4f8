"""Begins the imports of a local run's nodes before those of launch.py, which take as long.

This module imports only what takes little time. The command line has not been parsed yet, so it may
begin for a command that starts no local run. The processes then end with launch.py.
"""

from __future__ import annotations

from collections.abc import Sequence

# Flags of commands without a local run, or with one whose nodes are threads, as prefixes.
_NO_LOCAL_RUN = (
  'help',
  'launcher',
  'lp_launch_type',
  'list',
  'presets',
  'dry_run',
  'seeds',
  'config',
)


def begin(argv: Sequence[str]) -> None:
  """Begins, unless the command line has a flag by which it starts no local run.

  Args:
    argv: the command line.
  """
  words = [word.lstrip('-') for word in argv[1:] if word.startswith('-')]
  if any(word.startswith(_NO_LOCAL_RUN) for word in words):
    return
  from launchers.local import forks

  # A wrong guess costs a second start.
  forks.begin(isolate='isolate=no' not in words and 'accelerator=tpu' not in words)
