"""The state machine of requests, without sockets or a device."""

import types

from nodes.inference.batching import Batcher
from nodes.inference.env_groups import EnvGroup
from nodes.inference.layout import EnvGroupSpec
from nodes.inference.request_decoder import Request
from nodes.inference.scheduler import RequestScheduler


class Assembler:
  """Has one unroll to give, and another for each that is released."""

  def __init__(self):
    self.full, self.left, self.asked = True, 1, 0

  def append(self, *row):
    return None

  def take(self):
    self.asked += 1
    if not self.left:
      return None
    self.left -= 1
    return 'unroll'

  def release(self, unroll):
    self.left += 1

  def reset(self):
    return 0


class Inbox:
  """Yields what `arriving` yields, one list of requests for each poll."""

  def __init__(self, arriving):
    self._arriving = arriving

  def poll(self, timeout):
    return [(request.connection, request) for request in next(self._arriving)]

  def reply(self, connection, *values):
    pass

  def wake(self):
    pass


def test_room_for_one_of_many_groups_has_no_other_group_considered():
  specs = [EnvGroupSpec(f'actor/{i}', 0, 1, i) for i in range(500)]
  groups = [EnvGroup(spec, 0, i, Assembler()) for i, spec in enumerate(specs)]
  connection = types.SimpleNamespace(closed_by_peer=lambda: False)
  written = {}

  def requests(sequence):
    return [Request(group, 1, sequence, None, connection) for group in groups]

  def arriving():
    yield requests(0)
    yield requests(1)  # No assembler has room for these.
    yield []
    written[groups[7]]()
    yield []

  def write(unroll, release):
    written[release.args[0]] = release

  decoder = types.SimpleNamespace(unpack=lambda request, connection: request)
  batcher = Batcher(1000, 0.0)
  scheduler = RequestScheduler(groups, decoder, Inbox(arriving()), [batcher], write)
  _, batch = scheduler.next_batch()
  assert len(batch) == 500
  output = types.SimpleNamespace(action=None, extras={}, policy_version=0, core_state=None)
  for request in batch:
    scheduler.finish(request, output)
  batcher.served(batch)
  asked = sum(group.assembler.asked for group in groups)
  _, batch = scheduler.next_batch()
  assert [request.env_group for request in batch] == [groups[7]]
  assert scheduler.num_deferred == 499
  assert sum(group.assembler.asked for group in groups) == asked + 500 + 1
