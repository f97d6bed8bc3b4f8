"""The replay tables of programs with relabellers."""

from agents.options import make, replace
from nodes.unrolls.table_names import ORIGINALS, RELABELLED, UNROLLS, BatchPart
from programs import muzero


def test_tables_for_relabellers_keep_the_number_of_updates():
  """As many samples for each insert, over both tables of a batch, as without relabellers."""
  options = {'batch_size': 16, 'num_replay_shards': 2, 'samples_per_insert': 4.0}
  plain = make(muzero.Config, **options).resolve()
  shared = replace(plain, reanalyse_nodes=1, reanalyse_share=0.7)
  shared.validate()
  plain, shared = plain.replay, shared.replay
  assert plain.batch_parts == (BatchPart(UNROLLS, 16),) and plain.written_tables == (UNROLLS,)
  assert shared.batch_parts == (
    BatchPart(UNROLLS, 4),
    BatchPart(RELABELLED, 12),
  )  # 5.6 of 8 in each shard.
  assert shared.written_tables == (UNROLLS, ORIGINALS)
  infos = [{table.name: table for table in c.make_tables(1)} for c in (plain, shared)]
  assert [list(info) for info in infos] == [[UNROLLS], [UNROLLS, ORIGINALS, RELABELLED]]
  alone, part = (info[UNROLLS].rate_limiter for info in infos)
  assert (alone.samples_per_insert, part.samples_per_insert) == (4.0, 1.0)
  assert part.max_diff - part.min_diff == (alone.max_diff - alone.min_diff) / 4
  assert part.min_size_to_sample == alone.min_size_to_sample == 2_500
  originals, relabelled = infos[1][ORIGINALS], infos[1][RELABELLED]
  assert (originals.max_size, originals.rate_limiter.min_size_to_sample) == (50_000, 2_500)
  assert (relabelled.max_size, relabelled.rate_limiter.min_size_to_sample) == (60, 6)
