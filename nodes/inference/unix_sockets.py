"""Unix sockets beside the TCP port of a server, for clients on its machine.

Their names are abstract: they belong to the network namespace, as ports do, and leave no file behind.
"""

from __future__ import annotations

import socket

from absl import logging

from courier import sockets


def listen(port: int) -> socket.socket | None:
  """Returns a Unix socket that listens beside a port; None, with a line in the log, if it cannot."""
  try:
    return sockets.listen_unix(name(port))
  except OSError as error:
    logging.info('actors of this machine send their rows over TCP: no Unix socket (%s).', error)
    return None


def name(port: int) -> str:
  """Returns the name of the socket beside a port."""
  return f'\0launchpod-inference-{port}'
