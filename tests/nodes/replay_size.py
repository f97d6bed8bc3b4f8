"""What a replay server holds."""

from nodes.unrolls import tables
from nodes.unrolls.replay_client import ReplayClient


def replay_size(address):
  """Returns the number of items that the server at `address`, host:port, holds."""
  return ReplayClient(address).server_info()[tables.UNROLLS].current_size
