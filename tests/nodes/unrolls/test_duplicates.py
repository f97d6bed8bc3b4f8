"""The filter of unrolls that a writer sent twice."""

from nodes.unrolls import duplicates
from nodes.unrolls.duplicates import DuplicateFilter


def test_what_is_sampled_again_on_purpose_is_no_repeat():
  repeats = DuplicateFilter()
  samples = [(1, 1), (2, 1), (1, 2), (2, 3), (2, 1), (3, 1)]
  assert [repeats.keeps(*sample) for sample in samples] == [True, True, True, True, False, True]


def test_only_the_last_samples_are_remembered(monkeypatch):
  monkeypatch.setattr(duplicates, '_REMEMBERED', 2)
  repeats = DuplicateFilter()
  kept = {number: repeats.keeps(number, 1) for number in (1, 2, 3)}
  assert kept == {1: True, 2: True, 3: True}
  assert not repeats.keeps(3, 1) and not repeats.keeps(2, 1)
  assert repeats.keeps(1, 1)
  assert not repeats.keeps(1, 1) and repeats.keeps(2, 1)  # The 1 took the place of the 2.
