"""A client of Reverb's service that needs neither Reverb nor gRPC."""

from nodes.unrolls.replay_client.client import ReplayClient
from nodes.unrolls.replay_client.errors import ReplayAwayError, ReplayError
from nodes.unrolls.replay_client.messages import TableInfo
from nodes.unrolls.replay_client.sampler import Sampler
from nodes.unrolls.replay_client.samples import Sample
from nodes.unrolls.replay_client.writer import Writer, flush

__all__ = [
  'ReplayAwayError',
  'ReplayClient',
  'ReplayError',
  'Sample',
  'Sampler',
  'TableInfo',
  'Writer',
  'flush',
]
