"""A replay that does not fit is refused, with the arithmetic."""

import types

import pytest

from nodes.learning import memory

GIB = 2**30


def device(platform, gib=None, process=0):
  stats = None if gib is None else {'bytes_limit': gib * GIB}
  return types.SimpleNamespace(platform=platform, memory_stats=lambda: stats, process_index=process)


@pytest.fixture(autouse=True)
def a_host_of_16_gib(monkeypatch):
  monkeypatch.setattr(memory, 'host_bytes', lambda: 16 * GIB)


@pytest.mark.parametrize(
  'devices, checkpoints, most',
  [
    ([device('cpu')], True, 4),  # The replay, and three copies.
    ([device('cpu')] * 8, False, 16),
    ([device('cpu'), device('cpu', process=1)], False, 32),  # Half of it on each of two hosts.
    ([device('cpu'), device('cpu', process=1)], True, 4),
    ([device('gpu', 3)], True, 3),
    ([device('gpu', 3)] * 2, True, 5),
    ([device('gpu', 3)] * 2, False, 6),
    ([device('tpu')], False, 1000),
  ],
)
def test_the_largest_replay(devices, checkpoints, most):
  memory.check_memory(most * GIB, devices, checkpoints)
  if most < 1000:
    with pytest.raises(ValueError, match=r'^--replay_size makes a replay of .* GiB') as raised:
      memory.check_memory((most + 1) * GIB, devices, checkpoints)
    assert ('--checkpoint_period=0' in str(raised.value)) == (checkpoints and most != 3)


def test_the_host_has_memory():
  assert memory.host_bytes() > GIB / 2
