"""A program with a node of each of Launchpad's types."""

import launchpad as lp
import numpy as np

# Before Launchpad imports Reverb: without TensorFlow, whose import takes seconds in every process.
from nodes.unrolls.thin_reverb import reverb

# isort: split
from launchpad.nodes.reverb.node import ReverbHandle

from tests.launchers import nodes


class _Handle(ReverbHandle):
  """A handle whose process imports this module first."""


class Replay(lp.ReverbNode):
  """Launchpad's node, in a process that imports this module first."""

  def create_handle(self):
    return self._track_handle(_Handle(self.reverb_address))


class Inserter:
  """Inserts the reply of a server into a table of Reverb."""

  def __init__(self, echo, replay):
    self._echo, self._replay = echo, replay

  def run(self):
    said = self._echo.hello('inserter').encode()
    self._replay.insert([np.frombuffer(said, np.uint8)], {'said': 1.0})


def sample(echo, replay, *, path):
  """Writes the reply of a server and an item of Reverb to a file, and stops the program."""
  [[item]] = replay.sample('said')
  nodes.write(path, f'{echo.hello("reader")}: {item.data[0].tobytes().decode()}')
  lp.stop()


def _tables():
  return [reverb.Table.queue('said', max_size=1)]


def program(path, replay_node=Replay):
  """Returns the program; the file `path` receives what its nodes have exchanged."""
  graph = lp.Program('every-type')
  replay = graph.add_node(replay_node(_tables), label='replay')
  inner = lp.CourierNode(nodes.Echo)
  echo = inner.create_handle()
  inserter = lp.PyClassNode(Inserter, echo, replay)
  graph.add_node(lp.MultiThreadingColocation([inner, inserter]), label='colocation')
  graph.add_node(lp.PyNode(sample, echo, replay, path=path), label='reader')
  return graph
