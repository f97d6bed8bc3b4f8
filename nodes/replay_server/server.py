"""The process itself: makes the tables, starts Reverb, and opens the door.

`nodes.replay_server.child` starts it and gives it orders over a socket, one JSON object a line. The end
of that socket is the order to stop.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from courier import tls
from environments import entry
from nodes.replay_server import library
from nodes.replay_server.door import Door
from nodes.replay_server.inner_port import InnerPort
from nodes.runtime import network_namespace

_REPLY_SECONDS = 5


def main(argv: list[str]) -> None:
  """Serves replay until it is ordered to stop, then ends this process; never returns.

  Args:
    argv: the name of the program and the file descriptor of the socket.
  """
  control = socket.socket(fileno=int(argv[1]))
  orders, replies = control.makefile('r'), control.makefile('w')
  begin = json.loads(orders.readline())
  logging.basicConfig(format='%(levelname).1s %(message)s')
  try:
    context = tls.server_context()  # Another user namespace might keep its file out of reach.
    refusal = network_namespace.enter_if_allowed(user=0)
    entry.die_with(begin['parent'])  # After the change of user, which would undo it.
    reverb = library.load()
    port = InnerPort()
    tables = [_table(reverb, table) for table in begin['tables']]
    checkpointer = reverb.create_default_checkpointer(begin['scratch'], '', begin['checkpoint'])
  except ImportError as error:
    text = f'{sys.executable} cannot load Reverb ({error}); `make` installs its environment again.'
    _leave(replies, {'hopeless': text})
  except ValueError as error:
    _leave(replies, {'hopeless': str(error)})
  except OSError as error:
    _leave(replies, {'error': str(error)})
  try:
    with port.lent():
      server = reverb.Server(tables, port.number, checkpointer)
  except RuntimeError as error:
    _leave(replies, {'refused': str(error)})
  if refusal:
    try:
      port.restrict_to_loopback()
    except OSError as error:
      text = f'the port of Reverb cannot be closed to the network, which needs Linux 5.7: {error}'
      _leave(replies, {'error': text})
  listeners = [socket.socket(fileno=number) for number in begin['listeners']]
  door = Door(listeners, port.number, context)
  threading.Thread(target=_run, args=(door,), name='door', daemon=True).start()
  _reply(replies, {'refusal': refusal})
  _obey(orders, replies, reverb.Client(f'127.0.0.1:{port.number}'))
  server.Stop()
  os._exit(0)


def _table(reverb: Any, table: Mapping[str, Any]) -> Any:
  """Returns a table of Reverb from the fields of a `nodes.unrolls.tables.Table`."""
  selectors = {
    'fifo': reverb.FifoSelector,
    'lifo': reverb.LifoSelector,
    'uniform': reverb.UniformSelector,
    'prioritized': lambda: reverb.PrioritizedSelector(table['priority_exponent']),
  }
  return reverb.Table(
    name=table['name'],
    sampler=selectors[table['sampler']](),
    remover=selectors[table['remover']](),
    max_size=table['max_size'],
    max_times_sampled=table['max_times_sampled'],
    rate_limiter=reverb.RateLimiter(**table['rate_limiter']),
    extensions=[],
    signature=None,
  )


def _run(door: Door) -> None:
  try:
    door.run()
  except BaseException:
    traceback.print_exc()
    os._exit(1)


def _obey(orders: IO[str], replies: IO[str], client: Any) -> None:
  """Carries out orders until there are none left."""
  for line in orders:
    try:
      if json.loads(line) == 'checkpoint':
        _reply(replies, {'written': client.Checkpoint()})
      else:
        client.ServerInfo(_REPLY_SECONDS)
        _reply(replies, {})
    except RuntimeError as error:
      _reply(replies, {'refused': str(error)})


def _reply(replies: IO[str], value: Mapping[str, Any]) -> None:
  print(json.dumps(value), file=replies, flush=True)


def _leave(replies: IO[str], value: Mapping[str, Any]) -> NoReturn:
  _reply(replies, value)
  os._exit(1)


if __name__ == '__main__':
  main(sys.argv)
