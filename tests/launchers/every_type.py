"""A program with a node of each of Launchpad's types."""

import queue

import launchpad as lp

from tests.launchers import nodes


class Shelf:
  """A Courier server that keeps what it is given until it is taken."""

  def __init__(self):
    self._kept = queue.Queue()

  def put(self, text):
    self._kept.put(text)

  def take(self):
    return self._kept.get()


class Inserter:
  """Gives the reply of one server to another."""

  def __init__(self, echo, shelf):
    self._echo, self._shelf = echo, shelf

  def run(self):
    self._shelf.put(self._echo.hello('inserter'))


def sample(echo, shelf, *, path):
  """Writes the replies of both servers to a file, and stops the program."""
  nodes.write(path, f'{echo.hello("reader")}: {shelf.take()}')
  lp.stop()


def program(path):
  """Returns the program; the file `path` receives what its nodes have exchanged."""
  graph = lp.Program('every-type')
  shelf = graph.add_node(lp.CourierNode(Shelf), label='shelf')
  inner = lp.CourierNode(nodes.Echo)
  echo = inner.create_handle()
  inserter = lp.PyClassNode(Inserter, echo, shelf)
  graph.add_node(lp.MultiThreadingColocation([inner, inserter]), label='colocation')
  graph.add_node(lp.PyNode(sample, echo, shelf, path=path), label='reader')
  return graph
