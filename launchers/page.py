"""The live page of a run beside its launcher (--web): a process of its own, which runs watch.py."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator

from environments.interpreters import ROOT
from launchers import streams

_WATCH = os.path.join(ROOT, 'watch.py')


def listen(port: int) -> socket.socket:
  """Returns the listening socket of the page.

  Args:
    port: its port; 0 for a free one.

  Raises:
    ValueError: if the port cannot be used; one sentence.
  """
  listener = socket.socket()
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', port))
    listener.listen()
  except OSError as error:
    raise ValueError(f'--web_port={port} cannot be used: {error.strerror}.') from error
  return listener


@contextlib.contextmanager
def served(run_dir: str, listener: socket.socket | None) -> Iterator[None]:
  """Serves the page of a run on a socket of `listen`, and prints its address; None for no page."""
  if listener is None:
    yield
    return
  token = secrets.token_urlsafe(24)
  with listener:
    descriptor = listener.fileno()
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
