"""The parser of a command whose module docstring is its help."""

from __future__ import annotations

import argparse


def parser(docstring: str | None) -> argparse.ArgumentParser:
  """Returns a parser without abbreviations.

  Args:
    docstring: of the command's module: a summary in its first line, then examples.
  """
  assert docstring
  summary, _, examples = docstring.partition('\n')
  return argparse.ArgumentParser(
    description=summary,
    epilog=examples,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
