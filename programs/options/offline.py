"""Replay that also holds transitions which other runs have recorded."""

from __future__ import annotations

import dataclasses

from acme import specs

from agents.options import option
from nodes.unrolls import transitions
from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import OFFLINE, ORIGINALS
from programs.options.bellman import BellmanOptions


@dataclasses.dataclass(frozen=True)
class OfflineOptions(BellmanOptions):
  """Replay whose Bellman updaters mix online data with recorded data."""

  offline_data: str = option(
    '', 'directories of runs with --record_unrolls, with commas between; empty: online data only'
  )
  offline_size: int = option(
    0,
    'transitions of --offline_data that replay holds, evenly spaced among the recorded ones, over all '
    'replay servers; 0: all',
    at_least=0,
  )
  online_share: float = option(
    0.5,
    'with --offline_data, share of online transitions in what is learned from, at the end of '
    '--online_ramp; 0: offline data only; QT-Opt: up to 0.5',
    at_least=0,
    at_most=1,
  )
  online_ramp: int = option(
    2_000,
    'learner steps over which this share rises linearly from 0; 0: it is constant',
    at_least=0,
  )

  @property
  def offline_dirs(self) -> tuple[str, ...]:
    """The directories of `offline_data`."""
    return tuple(path for path in self.offline_data.split(',') if path)

  @property
  def relabelled_from(self) -> tuple[str, ...]:
    """Tables that relabellers read."""
    return (ORIGINALS, OFFLINE) if self.offline_data else super().relabelled_from

  @property
  def share_of_online(self) -> OnlineShare | None:
    """The share of online data in what relabellers read; None without offline data."""
    return OnlineShare(self.online_share, self.online_ramp) if self.offline_data else None

  def _check(self) -> None:
    if not self.offline_data:
      self._require_default('--offline_data', 'offline_size', 'online_share', 'online_ramp')
    elif not self.bellman_updaters:
      raise ValueError(
        '--offline_data needs the Bellman updaters, which --bellman_updaters=0 leaves out; leave one of '
        'them out.'
      )


def check(
  options: OfflineOptions, num_replicas: int, environment_spec: specs.EnvironmentSpec
) -> None:
  """Checks that the recorded data exist and fit the environment.

  Args:
    options: of replay, with `offline_data`.
    num_replicas: each with as many replay servers.
    environment_spec: of the run's environment.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  try:
    transitions.check(options.offline_dirs, environment_spec)
    found = transitions.count(options.offline_dirs)
  except ValueError as error:
    raise ValueError(f'--offline_data={error}') from error
  servers = num_replicas * options.num_replay_shards
  held = min(found, options.offline_size or found)
  if held < servers:
    raise ValueError(
      f'--offline_data={options.offline_data} gives {held} transitions for {servers} replay servers; '
      'name runs with more, or raise --offline_size.'
    )
