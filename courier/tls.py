"""Mutual TLS 1.3 between the processes of a run, which all hold one private key and its certificate.

The environment variable COURIER_TLS names the PEM file that holds both. The certificate is self-signed
and the only one that either side trusts. Without the variable nothing is encrypted.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  import ssl  # Takes 30 ms to import, which processes without TLS are spared.

VARIABLE = 'COURIER_TLS'


class HandshakeError(ConnectionError):
  """One side has refused the other. The text says why; "it" is the other side."""


def server_context() -> ssl.SSLContext | None:
  """Returns what servers accept connections with; None if the variable is not set.

  The file is read once. Later calls, in forked children too, return the same object.

  Raises:
    ValueError: if the file cannot be used.
  """
  path = os.environ.get(VARIABLE)
  return _contexts(path)[0] if path else None


def client_context() -> ssl.SSLContext | None:
  """Returns what clients connect with; like `server_context` otherwise. It checks no host name."""
  path = os.environ.get(VARIABLE)
  return _contexts(path)[1] if path else None


@functools.cache
def _contexts(path: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
  import ssl

  server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
  client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
  client.check_hostname = False
  server.num_tickets = 0  # Sessions are not resumed.
  for context in (server, client):
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
      context.load_cert_chain(path, password='')  # Or it would ask a terminal for one.
      context.load_verify_locations(path)
    except ssl.SSLError as error:
      raise ValueError(
        f'{VARIABLE} names {path}, which does not hold an unencrypted private key and its '
        f'certificate: {error.reason or error}'
      ) from error
    except OSError as error:
      raise ValueError(
        f'{VARIABLE} names {path}, which cannot be read: {error.strerror}'
      ) from error
  return server, client
