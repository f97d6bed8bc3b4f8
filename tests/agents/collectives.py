"""What a compiled program sends between devices."""

import re

_KINDS = 'all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute'


def kinds_of_collectives(text):
  """Returns the kinds of collectives in the text of a compiled program, sorted."""
  return sorted(set(re.findall(rf'\b({_KINDS})(?:-start)?\(', text)))
