"""Names of the replay tables that hold unrolls. Imports no Reverb, since the launcher needs them."""

from __future__ import annotations

from typing import NamedTuple

UNROLLS = 'unrolls'  # What actors have played, for the learner.
ORIGINALS = 'originals'  # The same unrolls, for relabellers; both tables share the bytes.
RELABELLED = 'relabelled'  # Copies with fresh targets, from relabellers, for the learner.
OFFLINE = 'offline'  # Transitions that other runs have recorded, for relabellers or the learner.

# The nodes that fill each table.
WRITERS = {
  UNROLLS: 'actors',
  ORIGINALS: 'actors',
  RELABELLED: 'relabellers',
  OFFLINE: 'replay loader',
}


class BatchPart(NamedTuple):
  """The part of every batch that comes from one table."""

  table: str
  unrolls: int
