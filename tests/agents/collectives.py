"""What a compiled program sends between devices."""

import math
import re

_KINDS = 'all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute'


def kinds_of_collectives(text):
  """Returns the kinds of collectives in the text of a compiled program, sorted."""
  return sorted(set(re.findall(rf'\b({_KINDS})(?:-start)?\(', text)))


def largest_sum(text):
  """Returns the number of elements of the largest array in any all-reduce of a compiled program."""
  results = re.findall(r'= (.*?) all-reduce(?:-start)?\(', text)
  shapes = (shape for result in results for shape in re.findall(r'\[([\d,]*)\]', result))
  return max(math.prod(map(int, filter(None, shape.split(',')))) for shape in shapes)
