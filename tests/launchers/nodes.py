"""Nodes for the tests of launchers: real servers and clients that start within a second."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import launchpad as lp

from launchers import node_entry
from nodes.runtime import activity, lifecycle


class Echo:
  """A Courier server."""

  def hello(self, name):
    return f'hello {name}'

  def wait_for_ever(self):
    threading.Event().wait()

  def courier_libraries(self):
    return courier_libraries()


def write(path, text):
  """Writes a file atomically."""
  with open(f'{path}.tmp', 'w') as f:
    f.write(text)
  os.replace(f'{path}.tmp', path)


def _wait_for(paths):
  while not all(map(os.path.exists, paths.split(os.pathsep))):
    time.sleep(0.01)


class Interpreter:
  """A Courier server that says by which Python it runs."""

  def __init__(self, numbers):
    self._total = float(numbers.sum())

  def describe(self):
    return self._total, sys.version_info[:2], sys.path


class Asker:
  """Writes the description of an `Interpreter` to a file."""

  def __init__(self, interpreter, answer):
    self._interpreter, self._answer = interpreter, answer

  def run(self):
    write(self._answer, json.dumps(self._interpreter.describe()))


class Caller:
  """Calls the server once and writes the reply to a file."""

  def __init__(self, echo, path):
    self._echo, self._path = echo, path

  def run(self):
    write(self._path, self._echo.hello('node'))


class Blocked:
  """Blocks in a Courier call that never returns."""

  def __init__(self, echo, path):
    self._echo, self._path = echo, path

  def run(self):
    write(self._path, str(os.getpid()))
    self._echo.wait_for_ever()


def courier_libraries():
  """Returns where `courier` comes from, and the shared libraries of any other that is loaded."""
  import courier

  with open('/proc/self/maps') as maps:
    libraries = {path for line in maps if '/courier/' in (path := line.split()[-1])}
  return [courier.__file__, *sorted(libraries)]


class Libraries:
  """Writes what its own process and that of an `Echo` have loaded of Courier to a file, JSON."""

  def __init__(self, echo, path):
    self._echo, self._path = echo, path

  def run(self):
    write(self._path, json.dumps([courier_libraries(), self._echo.courier_libraries()]))


class Rows(Echo):
  """Listens as an inference server does, on a second port, and knows no actor."""

  def run(self):
    from launchers import binding
    from nodes.inference.socket_server import SocketServer

    server = SocketServer(*binding.free_ports(1))
    self._listening.set()
    while not lifecycle.stop_event().is_set():
      server.poll(0.1)

  def __init__(self):
    self._listening = threading.Event()

  def hello(self, name):
    self._listening.wait()
    return super().hello(name)


class Stranger:
  """Calls two servers, and writes what a stranger gets of their run to a file, JSON."""

  def __init__(self, echo, rows, path, left_out):
    self._echo, self._rows, self._path, self._left_out = echo, rows, path, left_out

  def run(self):
    from tests.launchers import strangers

    assert {self._echo.hello('node'), self._rows.hello('node')} == {'hello node'}
    write(self._path, json.dumps(strangers.look(os.path.dirname(self._path), self._left_out)))


class Certificate:
  """Waits for a file, writes another with the certificate that it has, and stops the program."""

  def __init__(self, path):
    self._path = path

  def run(self):
    _wait_for(self._path)
    with open(os.environ['COURIER_TLS']) as file:
      write(f'{self._path}-certificate', file.read())
    lifecycle.stop_program()


class Stopper:
  """Stops the program as soon as all of `paths`, joined by os.pathsep, exist."""

  def __init__(self, paths):
    self._paths = paths

  def run(self):
    _wait_for(self._paths)
    lifecycle.stop_program()
    lifecycle.stop_event().wait()


class Crasher:
  """Raises as soon as `path` exists."""

  def __init__(self, path):
    self._path = path

  def run(self):
    _wait_for(self._path)
    raise RuntimeError('the node broke on purpose')


class EchoWithPid(Echo):
  """A server that writes its process id to a file at each start."""

  def __init__(self, path):
    write(path, str(os.getpid()))


class Killer:
  """Kills the server whose process id is in a file, calls it, and writes the reply to a file."""

  def __init__(self, echo, pid_file, path):
    self._echo, self._pid_file, self._path = echo, pid_file, path

  def run(self):
    _wait_for(self._pid_file)
    self._echo.hello('once')
    with open(self._pid_file) as f:
      os.kill(int(f.read()), signal.SIGKILL)
    write(self._path, self._echo.hello('again'))


class Assassin:
  """Kills the server whose process id is in a file, then raises."""

  def __init__(self, pid_file):
    self._pid_file = pid_file

  def run(self):
    _wait_for(self._pid_file)
    with open(self._pid_file) as f:
      os.kill(int(f.read()), signal.SIGKILL)
    raise RuntimeError('the server has gone')


class Mortal:
  """Kills itself twice; after the second restart calls the server and writes the reply to a file."""

  def __init__(self, echo, path):
    self._echo, self._path = echo, path

  def run(self):
    starts = 1 + int(os.environ['LAUNCHPOD_RESTART_COUNT'])
    if starts < 3:
      os.kill(os.getpid(), signal.SIGKILL)
    write(self._path, self._echo.hello(f'start {starts}'))


class Hanger:
  """Hangs in a different way after each start, three times; then writes a file."""

  def __init__(self, path):
    self._path = path

  def run(self):
    hangs = [self.stop, self.hold_the_interpreter_lock, self.make_no_progress]
    if lifecycle.restart_count() < len(hangs):
      hangs[lifecycle.restart_count()]()
    write(self._path, f'restart {lifecycle.restart_count()}')

  def stop(self):
    os.kill(os.getpid(), signal.SIGSTOP)

  def hold_the_interpreter_lock(self):
    _hold_the_interpreter_lock()

  def make_no_progress(self):
    activity.mark(activity.PLAYING)
    time.sleep(1000)


def _hold_the_interpreter_lock():
  libc, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
  for _ in range(2):  # The second call never returns, whatever the signals.
    libc.pthread_mutex_lock(mutex)


class HangsOnce(Hanger):
  """Hangs in one of the ways of `Hanger`; after the restart writes a file."""

  def __init__(self, path, way=Hanger.hold_the_interpreter_lock):
    super().__init__(path)
    self._way = way

  def run(self):
    if lifecycle.restart_count() == 0:
      self._way(self)
    write(self._path, f'restart {lifecycle.restart_count()}')


class Locked:
  """Writes a file, then blocks while it holds the interpreter lock."""

  def __init__(self, echo, path):
    self._path = path

  def run(self):
    write(self._path, 'yes')
    _hold_the_interpreter_lock()


class Patient:
  """Waits for replay until the file `path` with '-go' at its end exists; then writes a file."""

  def __init__(self, path):
    self._path = path

  def run(self):
    activity.mark(activity.WAITING_FOR_REPLAY)
    _wait_for(f'{self._path}-go')
    write(self._path, 'done')


class Leaver:
  """Exits before its work is done, in the way named by `way`; after the restart writes a file."""

  def __init__(self, path, way):
    self._path, self._way = path, way

  def run(self):
    if lifecycle.restart_count() == 0:
      getattr(self, self._way)()
    else:
      write(self._path, f'restart {lifecycle.restart_count()}')

  def system_exit(self):
    sys.exit(0)

  def exit_of_a_library(self):
    os._exit(0)

  def sigterm_of_a_stranger(self):
    os.kill(os.getpid(), signal.SIGTERM)
    lifecycle.stop_event().wait()


class Parent:
  """Starts a process in a session and with variables of its own, and one in its process group."""

  def __init__(self, path):
    self._path = path

  def run(self):
    alone = subprocess.Popen(['env', '-i', 'sleep', '1000'], start_new_session=True)
    children = [alone, subprocess.Popen(['sleep', '1000'])]
    pids = ' '.join(str(child.pid) for child in children)
    write(f'{self._path}-{lifecycle.restart_count()}', f'{os.getpid()} {pids}')
    lifecycle.stop_event().wait()


class OneOfAJob:
  """Waits until it is restarted, or kills itself; after the restart writes a file."""

  def __init__(self, path, dies):
    self._path, self._dies = path, dies

  def run(self):
    if lifecycle.restart_count():
      write(self._path, 'restarted')
    elif self._dies:
      os.kill(os.getpid(), signal.SIGKILL)
    lifecycle.stop_event().wait()


class Hopeless:
  """Raises an error that a restart cannot fix."""

  def __init__(self, echo, message):
    self._message = message

  def run(self):
    raise lifecycle.NonRetryableError(self._message)


class Finisher:
  """Blocks in a call, with work before exit that takes longer than the grace period."""

  def __init__(self, echo, paths):
    self._echo = echo
    self._begun, self._done = paths.split(':')

  def run(self):
    lifecycle.run_before_exit(self._work)
    self._echo.wait_for_ever()

  def _work(self):
    write(self._begun, 'yes')
    time.sleep(node_entry.DEFAULT_GRACE + 1)
    write(self._done, 'complete')


class Environment:
  """Writes its environment variables, working directory and niceness to a file, then returns."""

  def __init__(self, path):
    self._path = path

  def run(self):
    with open(self._path, 'w') as f:
      json.dump({**os.environ, 'cwd': os.getcwd(), 'nice': os.nice(0)}, f)


def program(*nodes):
  """Returns a program of Echo and one node per (class, needs_echo, path) triple."""
  graph = lp.Program('test')
  echo = graph.add_node(lp.CourierNode(Echo), label='echo')
  for i, (constructor, needs_echo, path) in enumerate(nodes):
    arguments = (echo, path) if needs_echo else (path,)
    graph.add_node(lp.PyClassNode(constructor, *arguments), label=f'node{i}')
  return graph


_OWN = """
import launchpad as lp

class Writer:
  def __init__(self, path):
    self._path = path
  def run(self):
    with open(self._path, 'w') as f:
      f.write(Writer.__name__)

def make_program(path: str):
  program = lp.Program('mine')
  program.add_node(lp.PyClassNode(Writer, path), label='writer')
  return program
"""


def users_own(path, written):
  """Returns a program from a user's file, which is then deleted; its node writes its class's name."""
  from programs import registry  # Lazy: nodes of other tests do not need it.

  path.write_text(_OWN)
  loaded = registry.load(f'{path}:make_program')
  program = loaded.make_program(loaded.make_config({'path': str(written)}))
  path.unlink()
  return program


class Describer:
  """Writes what its process is to a file, JSON: variables, random numbers and command line."""

  def __init__(self, path):
    self._path = path

  def run(self):
    import random

    import numpy as np

    with open('/proc/self/environ') as f:
      at_start = dict(line.split('=', 1) for line in f.read().split('\0') if '=' in line)
    with open('/proc/self/cmdline') as f:
      command = f.read().split('\0')[:-1]
    described = {
      'variables': _ours(os.environ),
      'at_start': _ours(at_start),
      'random': [random.random(), np.random.random()],
      'command': command,
    }
    write(self._path, json.dumps(described))


def _ours(variables):
  return {k: variables[k] for k in ('NPROC', 'LIBRARY_READS_THIS') if k in variables}


class ParentKiller:
  """Kills the process that has started it, once; then writes both parents' ids to a file."""

  def __init__(self, echo, path):
    self._echo, self._path = echo, path

  def run(self):
    self._echo.hello('node')
    first = f'{self._path}-first'
    if not os.path.exists(first):
      write(first, str(os.getppid()))
      os.kill(os.getppid(), signal.SIGKILL)
      threading.Event().wait()
    with open(first) as f:
      write(self._path, f'{f.read()} {os.getppid()}')
    lifecycle.stop_program()
