"""Numbers and tables in Markdown."""

import pytest

from sweeps import cells


def test_numbers_are_short_and_keep_their_sign():
  shown = [cells.number(x) for x in (0.98765, -0.0, -176.04, 999.96, 1000.0, 1234567.8)]
  assert shown == ['0.9877', '0', '-176', '1000', '1,000', '1,234,568']
  with pytest.raises(ValueError, match='ends a cell'):
    cells.table(['a'], [['b|c']])
