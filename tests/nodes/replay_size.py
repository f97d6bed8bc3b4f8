"""What a replay server holds."""

import reverb

from nodes.unrolls import tables


def replay_size(address):
  """Returns the number of items that the server at `address`, host:port, holds."""
  return reverb.Client(address).server_info()[tables.TABLE].current_size
