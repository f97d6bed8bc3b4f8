"""What a replay server holds."""

from nodes.unrolls import tables
from nodes.unrolls.thin_reverb import reverb


def replay_size(address):
  """Returns the number of items that the server at `address`, host:port, holds."""
  return reverb.Client(address).server_info()[tables.UNROLLS].current_size
