"""The filter of unrolls that a writer sent twice."""

from nodes.unrolls.duplicates import DuplicateFilter


def test_what_is_sampled_again_on_purpose_is_no_repeat():
  repeats = DuplicateFilter()
  samples = [(1, 1), (2, 1), (1, 2), (2, 3), (2, 1), (3, 1)]
  assert [repeats.keeps(*sample) for sample in samples] == [True, True, True, True, False, True]
