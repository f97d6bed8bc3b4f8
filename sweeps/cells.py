"""Cells of tables, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.bootstrap import Estimate

NONE = '-'


def number(value: float) -> str:
  """Returns a number with four significant digits, or as a whole number from 1,000 on."""
  return f'{value:,.0f}' if abs(value) >= 1000 else f'{value + 0.0:.4g}'


def estimate(made: Estimate, without: str = 'one seed') -> str:
  """Returns an aggregate with its interval, or with the words for why it has none."""
  if made.interval is None:
    return f'{number(float(made.value))}, {without}'
  low, high = (number(float(bound)) for bound in made.interval)
  return f'{number(float(made.value))} ({low} to {high})'


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
  """Returns the lines of a Markdown table.

  Raises:
    ValueError: a cell has a vertical line.
  """
  for cell in (cell for row in [header, *rows] for cell in row):
    if '|' in cell or '\n' in cell:
      raise ValueError(f'the cell {cell!r} has a character that ends a cell.')
  lines = [header, ['---'] * len(header), *rows]
  return [f'| {" | ".join(cells)} |' for cells in lines] + ['']
