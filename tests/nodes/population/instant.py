"""A leaderboard that members call in their own thread, and a network that may be down."""

from concurrent import futures

from agents.population import space
from agents.seeding import Seed
from agents.vtrace.config import VTraceConfig
from nodes.leaderboard import Leaderboard
from nodes.population.options import BoardOptions, PopulationOptions

AXES = space.parse('learning_rate=1e-4..1e-2', VTraceConfig())


class Unavailable(Exception):
  """What a client raises while the server is away."""

  code = 'UNAVAILABLE'


class Client:
  """Calls a leaderboard at once, or not at all while it is down.

  Attributes:
    is_down: whether calls fail.
    loses: whether replies are lost, of calls that have been made.
    holds: whether replies are kept back, in `held`.
    calls: the arguments of each `report`.
  """

  def __init__(self, leaderboard):
    self.leaderboard, self.futures = leaderboard, self
    self.is_down = self.loses = self.holds = False
    self.held, self.calls = [], []

  def report(self, *args):
    future = futures.Future()
    if not self.is_down:
      self.calls.append(args)
      reply = self.leaderboard.report(*args)
    if self.holds:
      self.held.append((future, reply))
    elif self.is_down or self.loses:
      future.set_exception(Unavailable('down'))
    else:
      future.set_result(reply)
    return future

  def finished(self, *args):
    future = futures.Future()
    if self.is_down:
      future.set_exception(Unavailable('down'))
    else:
      future.set_result(self.leaderboard.finished(*args))
    return future

  def deliver(self):
    """Delivers what was kept back."""
    self.holds = False
    for future, reply in self.held:
      future.set_result(reply)
    self.held = []


def serving(run_dir, axes=AXES, num_steps=10**9, **options):
  """Returns a leaderboard as it is once `run` serves."""
  given = PopulationOptions(**options)
  board = Leaderboard(BoardOptions(given, axes, num_steps, Seed(1), str(run_dir)), None)
  board._restore()
  board._gate.open()
  return board
