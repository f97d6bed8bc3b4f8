"""Messages over a socket."""

import socket

from nodes.inference.message_socket import MessageSocket
from tests.agents.subprocesses import run_python
from tests.waiting import DEADLINE


class QuickPeer:
  """A socket whose peer reads a message and is sent the next one before `send` returns."""

  def __init__(self, stream):
    self._stream = stream
    self.family = stream.family
    self.on_sent = None

  def send(self, message):
    count = self._stream.send(message)
    on_sent, self.on_sent = self.on_sent, None
    if on_sent is not None:
      on_sent()
    return count


def test_a_second_thread_sends_the_next_reply_before_the_first_thread_has_returned():
  near, far = socket.socketpair()
  far.settimeout(DEADLINE)
  quick = QuickPeer(near)
  server, client = MessageSocket(quick), MessageSocket(far)
  received = []

  def peer_answers_at_once():
    received.append(client.receive())
    server.send(b'second')

  quick.on_sent = peer_answers_at_once
  server.send(b'first')
  received.append(client.receive())
  assert received == [b'first', b'second']
  near.close()
  far.close()


def test_a_connection_ends_though_a_child_of_its_process_lives():
  code = """
import os, socket
from nodes.inference.message_socket import MessageSocket

near, far = (MessageSocket(each) for each in socket.socketpair())
waits, ends = os.pipe()
child = os.fork()
if child == 0:
  os.close(ends)
  os.read(waits, 1)
  os._exit(0)
near.close()
far.set_timeout(60)
print(far.closed_by_peer())
os.close(ends)
os.waitpid(child, 0)
"""
  assert run_python('-c', code).split() == ['True']
