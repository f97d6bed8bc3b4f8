"""Values of tables that are refused where the graph is made."""

import pytest

from nodes.unrolls import tables
from nodes.unrolls.tables import RateLimiter, Table


@pytest.mark.parametrize(
  ('make', 'message'),
  [
    (lambda: tables.queue_table(0), 'table unrolls: max_size=0 must be at least 1.'),
    (lambda: tables.uniform_table(10, 11), 'table originals: min_size_to_sample=11 must be'),
    (lambda: tables.uniform_table(10, 0), 'table originals: min_size_to_sample=0 must be'),
    (lambda: tables.prioritized_table(10, 1, 4.0, 3.0, 0.9), 'error_buffer=3.0 must be at least 1'),
    (lambda: Table('', 'fifo', 10, RateLimiter()), 'a table needs a name.'),
    (
      lambda: Table('x', 'heap', 10, RateLimiter()),
      "table x: 'heap' is no selector; there are fifo,",
    ),
    (lambda: Table('x', 'fifo', 10, RateLimiter(0.0)), 'table x: samples_per_insert=0.0 must be'),
    (
      lambda: Table('x', 'fifo', 10, RateLimiter(min_diff=2.0, max_diff=1.0)),
      'table x: min_diff=2.0 must be below max_diff=1.0.',
    ),
    (
      lambda: tables.all_tables(tables.queue_table(1), tables.queue_table(2)),
      'two tables of a replay server have the name unrolls.',
    ),
  ],
)
def test_a_table_that_reverb_would_not_take_is_refused_in_one_sentence(make, message):
  with pytest.raises(ValueError) as raised:
    make()
  assert str(raised.value).startswith(message)
