"""The live page of a run beside its launcher (--web): a process of its own, which runs watch.py."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator

from launchers import streams

_WATCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'watch.py')
# Descriptor of the page's socket, while a local launcher executes itself again.
_LISTENER_VARIABLE = 'LAUNCHPOD_PAGE_LISTENER'


def listen(port: int) -> None:
  """Opens the socket of the page.

  Call it before a local run enters a network of its own: the socket stays in the network in which it
  was opened.

  Args:
    port: its port; 0 for a free one.

  Raises:
    ValueError: if the port cannot be used; one sentence.
  """
  if _LISTENER_VARIABLE in os.environ:
    return
  listener = socket.socket()
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', port))
    listener.listen()
  except OSError as error:
    raise ValueError(f'--web_port={port} cannot be used: {error.strerror}.') from error
  os.set_inheritable(listener.fileno(), True)
  os.environ[_LISTENER_VARIABLE] = str(listener.detach())


@contextlib.contextmanager
def served(run_dir: str) -> Iterator[None]:
  """Serves the page of a run on the socket of `listen`, if there is one, and prints its address."""
  descriptor = int(os.environ.pop(_LISTENER_VARIABLE, '-1'))
  if descriptor < 0:
    yield
    return
  token = secrets.token_urlsafe(24)
  with socket.socket(fileno=descriptor) as listener:
    os.set_inheritable(descriptor, False)  # Nodes do not inherit it.
    page = subprocess.Popen(
      [sys.executable, _WATCH, run_dir, '--web', f'--listener={descriptor}'],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      pass_fds=[descriptor],
      start_new_session=True,  # Ctrl-C is for the launcher.
    )
    assert page.stdin is not None
    # The token is secret, and every user can read a command line. The page ends at the end of its stdin,
    # so it does not outlive this process.
    page.stdin.write(f'{token}\n'.encode())
    page.stdin.flush()
    streams.say(f'page: http://127.0.0.1:{listener.getsockname()[1]}/?token={token}')
  try:
    yield
  finally:
    page.stdin.close()
    page.terminate()
    page.wait()
