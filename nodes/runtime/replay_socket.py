"""The Unix socket beside the port of a replay server, which gives clients of the same user a connection.

A client sends `HAND_OVER`. It comes back with the file descriptor of a TCP socket that is connected to
Reverb; see `nodes.replay_server.door`.
"""

from __future__ import annotations

HAND_OVER = b'\0'


def unix_name(port: int) -> str:
  """Returns the abstract name of the socket beside a port."""
  return f'\0launchpod-replay-{port}'
