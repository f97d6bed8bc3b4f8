"""Whether a replay on the devices fits into their memory, and its checkpoints into the host's."""

from __future__ import annotations

import os
from collections.abc import Sequence

import jax

# A checkpoint is copied to the host, and serialising the copy takes up to twice its size.
COPIES = 3
_GIB = 2**30


def host_bytes() -> int:
  """Returns the size of this host's memory."""
  return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')


def check_memory(replay_bytes: int, devices: Sequence[jax.Device], checkpoints: bool) -> None:
  """Checks a replay that is spread evenly over devices.

  Args:
    replay_bytes: its size, over all devices.
    devices: of this process and others; CPU devices share the memory of their host.
    checkpoints: whether checkpoints are written, of all of the replay.

  Raises:
    ValueError: it does not fit; one sentence that names the flags and the fix.
  """
  local = [device for device in devices if device.process_index == jax.process_index()]
  on_host = COPIES * checkpoints + (devices[0].platform == 'cpu') * len(local) / len(devices)
  if on_host * replay_bytes > host_bytes():
    fix = ', or set --checkpoint_period=0' if checkpoints else ''
    raise ValueError(
      f'--replay_size makes a replay of {replay_bytes / _GIB:.1f} GiB, of which this host holds up to '
      f'{on_host:g} copies, those for checkpoints included, in {host_bytes() / _GIB:.1f} GiB of memory; '
      f'lower it{fix}.'
    )
  each = replay_bytes / len(devices)
  for device in local:
    limit = (device.memory_stats() or {}).get('bytes_limit', each)
    if each > limit:
      raise ValueError(
        f'--replay_size makes a replay of {each / _GIB:.1f} GiB on each device, and {device} has '
        f'{limit / _GIB:.1f} GiB of memory; lower it, or set --num_devices.'
      )
