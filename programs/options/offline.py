"""Replay that holds transitions which other runs have recorded, alone or beside others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from acme import specs

from agents.options import option
from nodes.unrolls import transitions
from nodes.unrolls.online_share import OnlineShare
from nodes.unrolls.table_names import OFFLINE, ORIGINALS, BatchPart
from nodes.unrolls.tables import Table
from programs.options.bellman import BellmanOptions
from programs.options.replay import ReplayOptions


@dataclasses.dataclass(frozen=True)
class RecordedOptions(ReplayOptions):
  """The transitions that other runs have recorded, in a table of replay."""

  offline_data: str = option(
    '',
    'directories of runs with --record_unrolls, with commas between; --program=offline needs it, others '
    'learn from online data only without it',
  )
  offline_size: int = option(
    0,
    'transitions of --offline_data that replay holds, evenly spaced among the recorded ones, over all '
    'replay servers; 0: all',
    at_least=0,
  )

  needs_data = False  # Whether a program has nothing else to learn from.

  @property
  def offline_dirs(self) -> tuple[str, ...]:
    """The directories of `offline_data`."""
    return tuple(path for path in self.offline_data.split(',') if path)

  def _check(self) -> None:
    if not self.offline_data:
      self._require_default('--offline_data', 'offline_size')


@dataclasses.dataclass(frozen=True)
class OfflineOptions(RecordedOptions, BellmanOptions):
  """Replay whose Bellman updaters mix online data with recorded data."""

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
  def relabelled_from(self) -> tuple[str, ...]:
    """Tables that relabellers read."""
    return (ORIGINALS, OFFLINE) if self.offline_data else super().relabelled_from

  @property
  def share_of_online(self) -> OnlineShare | None:
    """The share of online data in what relabellers read; None without offline data."""
    return OnlineShare(self.online_share, self.online_ramp) if self.offline_data else None

  def _check(self) -> None:
    if not self.offline_data:
      self._require_default('--offline_data', 'online_share', 'online_ramp')
    elif not self.bellman_updaters:
      raise ValueError(
        '--offline_data needs the Bellman updaters, which --bellman_updaters=0 leaves out; leave one of '
        'them out.'
      )


@dataclasses.dataclass(frozen=True)
class OnlyRecordedOptions(RecordedOptions):
  """Replay that holds recorded transitions and nothing else, and is sampled uniformly."""

  batch_size: int = 64
  needs_data = True

  @property
  def batch_parts(self) -> tuple[BatchPart, ...]:
    """The transitions of a learner batch."""
    return (BatchPart(OFFLINE, self.batch_size),)

  def make_tables(self, env_group_size: int) -> Sequence[Table]:
    """Returns none: the table of recorded transitions is added for every kind of replay."""
    del env_group_size
    return ()


def check_agent(agent: Any) -> None:
  """Raises ValueError, one sentence, unless an agent learns from single transitions."""
  for name in ('unroll_length', 'frame_stack'):
    if (value := getattr(agent, name)) != 1:
      raise ValueError(
        f'--offline_data has single transitions, and --{name}={value} needs more rows; leave one of '
        'them out.'
      )


def check(
  options: RecordedOptions, num_replicas: int, environment_spec: specs.EnvironmentSpec
) -> None:
  """Checks that the recorded data, if any are named or needed, exist and fit the environment.

  Args:
    options: of replay.
    num_replicas: each with as many replay servers.
    environment_spec: of the run's environment.

  Raises:
    ValueError: one sentence that names the flag and the fix.
  """
  if not options.offline_data:
    if not options.needs_data:
      return
    raise ValueError(
      '--offline_data is missing: name the runs to learn from, which had --record_unrolls.'
    )
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
