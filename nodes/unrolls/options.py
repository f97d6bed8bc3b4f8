"""Options of nodes that write unrolls. Imports no JAX, since the launcher builds graphs with them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from agents.options import CheckedOptions, option
from nodes.unrolls.table_names import UNROLLS
from rundir.recorded_unrolls import RecordingOptions


class UnrollSinks(NamedTuple):
  """Where a node writes its unrolls.

  Attributes:
    tables: the tables of replay that each unroll is written to.
    unrolls_per_item: unrolls in an item of replay.
    audit_dir: directory of unroll records; '' for none. See `rundir.audit`.
    recording: where each unroll is recorded; None for nowhere.
  """

  tables: tuple[str, ...] = (UNROLLS,)
  unrolls_per_item: int = 1
  audit_dir: str = ''
  recording: RecordingOptions | None = None


@dataclasses.dataclass(frozen=True)
class UnrollOptions(CheckedOptions):
  """What is recorded of the unrolls, beside their way through replay."""

  record_unrolls: bool = option(
    False,
    'write every unroll that actors produce into unrolls/ of the run directory, for --offline_data',
  )
  record_gigabytes: float = option(
    10.0,
    'size of these files, in units of 10**9 bytes, at which --record_unrolls ends; training continues',
    above=0,
    at_most=1e6,
  )
  audit: bool = option(False, 'record every unroll that is produced and trained on, for drills')

  @property
  def any_recorded(self) -> bool:
    """Whether nodes that write unrolls write to the run directory as well."""
    return self.audit or self.record_unrolls

  def audit_dir(self, run_dir: str) -> str:
    """Returns the directory in which every unroll is recorded; '' for no recording."""
    return run_dir if self.audit else ''

  def recording(self, run_dir: str) -> RecordingOptions | None:
    """Returns where unrolls are recorded; None for nowhere."""
    if not self.record_unrolls:
      return None
    return RecordingOptions(run_dir, int(self.record_gigabytes * 1e9))

  def _check(self) -> None:
    if not self.record_unrolls:
      self._require_default('--record_unrolls', 'record_gigabytes')
