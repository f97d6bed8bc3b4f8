"""How every process of ours begins: it runs a module, and imports nothing from its directory.

`python -m` looks for every module in the working directory first, before PYTHONPATH and the standard
library. A `random.py` there would run, and a project's own `agents/` would hide ours. The option -P
prevents it in the processes that multiprocessing starts, too. Python 3.10, which may be the interpreter
of a group, lacks it. This module uses only the standard library, because `launchers.ray.machines` sends
it to machines by value.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT_VARIABLE = 'LAUNCHPOD_LAUNCHER_PID'  # Process id of the parent with which a node ends.
_PR_SET_PDEATHSIG = 1
_RUN = (
  'import sys; sys.path[:] = filter(None, sys.path); sys.argv[0] = {module!r}; '
  'from {module} import main; sys.exit(main(sys.argv))'
)


def python_path(leave_out: str = '') -> str:
  """Returns this process's import path as a PYTHONPATH, without one directory."""
  return os.pathsep.join(p or os.getcwd() for p in sys.path if not leave_out or p != leave_out)


def die_with(parent: int) -> None:
  """Has the kernel kill this process once its parent has ended, and exits now if that has happened.

  A change of user undoes it.

  Args:
    parent: process id of the parent.
  """
  ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != parent:
    os._exit(1)


def command(python: str, module: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
  """Returns the command that calls `main(argv)` of a module and exits with what it returns.

  Args:
    python: the interpreter.
    module: of this repository, importable from PYTHONPATH; `argv` is its name, then the arguments.
    *arguments: of the module.
    options: of the interpreter.
  """
  safe = ('-P',) if python == sys.executable else ()
  return [python, *safe, *options, '-c', _RUN.format(module=module), *arguments]
