"""Calls functions in processes of their own: a user's environment, and what needs JAX.

A constructor may change the directory, block signals, start threads, end its process or crash it. None
of this may happen to the launcher, which is the parent of every node.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from typing import Any

from environments import crossing, entry, interpreters

_VALUE, _REFUSED, _FAILED = 'value', 'refused', 'failed'


def call(function: str, *arguments: Any, flag: str, python: str = '') -> Any:
  """Calls a function in a new process, without accelerators; returns what it returns.

  The process has the working directory, the variables and the import path of this one, and no terminal:
  its standard input is empty, and what it prints goes to stderr. It is killed if this thread ends or is
  interrupted. Processes that it leaves behind are the caller's; see `launchers.guard.swept`.

  Args:
    function: 'module:name', of this repository.
    *arguments: of the function; they and what it returns are pickled.
    flag: names what is tried, for errors.
    python: the interpreter of the process; '' for this one. Another one has its own import path, see
      `environments.interpreters`.

  Raises:
    ValueError: the function raises one, or ends its process; one sentence.
    RuntimeError: the function raises something else; it has the traceback.
  """
  answer = _answer(crossing.dumps((function, arguments)), flag, python)
  kind, value = pickle.loads(answer)
  if kind == _REFUSED:
    raise ValueError(value)
  if kind == _FAILED:
    raise RuntimeError(f'{flag} cannot be tried:\n{value}')
  return value


def _answer(question: bytes, flag: str, python: str) -> bytes:
  """Returns the pickled outcome of a call.

  The process opens the file for it by its name, as the environment may close every descriptor.
  """
  if python:
    imports = interpreters.variables()
  else:
    imports = {'PYTHONPATH': entry.python_path()}
  with open(os.memfd_create('answer'), 'rb') as answer:
    process = subprocess.run(
      entry.command(
        python or sys.executable,
        __name__,
        *(str(os.getpid()), str(answer.fileno())),
        options=('-X', 'faulthandler'),
      ),
      env={**os.environ, **imports, 'JAX_PLATFORMS': 'cpu'},
      input=question,
      stdout=2,
      start_new_session=True,  # Ctrl-C in the terminal reaches the launcher only, which kills it.
    )
    found = answer.read()
  if not found:
    raise ValueError(f'{flag}: trying it ended its process with {_ending(process.returncode)}.')
  return found


def _ending(code: int) -> str:
  if code >= 0:
    return f'exit code {code}'
  return next((s.name for s in signal.Signals if s == -code), f'signal {-code}')


def main(argv: list[str]) -> None:
  """Answers a call; the arguments are the caller's process id and its file for the answer."""
  _, parent, file = argv
  entry.die_with(int(parent))
  try:
    function, arguments = pickle.load(sys.stdin.buffer)
    module, _, name = function.partition(':')
    value = getattr(importlib.import_module(module), name)(*arguments)
    answer = crossing.dumps((_VALUE, value))
  except ValueError as error:
    answer = pickle.dumps((_REFUSED, str(error)))
  except BaseException:
    answer = pickle.dumps((_FAILED, traceback.format_exc()))
  with open(f'/proc/{parent}/fd/{file}', 'wb') as f:
    f.write(answer)
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, ValueError, AttributeError):
      stream.flush()
  os._exit(0)  # Threads that the environment has left do not delay it.
