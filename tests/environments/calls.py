"""Functions for processes of their own."""

import os
import pathlib
import signal
import sys
import threading
import time


def where():
  """Returns the working directory, the import path, and whether JAX is told to use the CPU."""
  return os.getcwd(), sys.path, os.environ['JAX_PLATFORMS']


def spoil(file):
  """Does to its process what an environment may do, and leaves its id in a file."""
  pathlib.Path(file).write_text(str(os.getpid()))
  os.chdir('/')
  os.environ['SPOILT'] = 'yes'
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
  threading.Thread(target=time.sleep, args=(1000,)).start()
  print('printed by the environment')
  os.closerange(3, 1000)
  return 'value'


def end(code):
  """Ends its process with an exit code, or with the signal of that negative number."""
  if code < 0:
    os.kill(os.getpid(), -code)
  os._exit(code)


def stay(file):
  """Writes its process id and does not return."""
  signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
  pathlib.Path(file).write_text(f'{os.getpid()}\n')
  time.sleep(1000)


def fail():
  """Raises an error of the program's."""
  raise ZeroDivisionError('a bug')
