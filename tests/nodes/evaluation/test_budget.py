"""The time of evaluations is a share of the wall time, apart from a few free seconds of each."""

from nodes.evaluation.budget import FREE_SECONDS, EvaluationBudget


class Clock:
  """A clock that tests set."""

  def __init__(self):
    self.now = 100.0

  def __call__(self):
    return self.now


def test_short_evaluations_are_free():
  clock = Clock()
  budget = EvaluationBudget(0.05, 60.0, clock)
  for _ in range(100):
    assert budget.allows_another()
    is_out_of_time = budget.begin(final=False)
    clock.now += FREE_SECONDS - 0.1
    assert not is_out_of_time()
    budget.took(FREE_SECONDS - 0.1)


def test_a_long_evaluation_is_followed_by_a_pause():
  clock = Clock()
  budget = EvaluationBudget(0.05, 60.0, clock)
  is_out_of_time = budget.begin(final=False)
  clock.now += FREE_SECONDS
  assert is_out_of_time()
  clock.now += 10.0 - FREE_SECONDS  # The rest of its first round.
  budget.took(10.0)
  assert not budget.allows_another()
  clock.now = 100.0 + (10.0 - FREE_SECONDS) / 0.05 + 0.01
  assert budget.allows_another()
  # What it has left grows with the time of training.
  clock.now += 1000.0
  is_out_of_time = budget.begin(final=False)
  clock.now += FREE_SECONDS + 49.0
  assert not is_out_of_time()
  clock.now += 2.0
  assert is_out_of_time()


def test_the_final_evaluation_has_seconds_of_its_own():
  clock = Clock()
  budget = EvaluationBudget(0.05, 60.0, clock)
  budget.took(1e6)
  is_out_of_time = budget.begin(final=True)
  clock.now += 59.0
  assert not is_out_of_time()
  clock.now += 1.0
  assert is_out_of_time()


def test_without_limits_nothing_is_late():
  clock = Clock()
  budget = EvaluationBudget(1.0, 0.0, clock)
  for final in (False, True):
    is_out_of_time = budget.begin(final)
    clock.now += 1e9
    assert not is_out_of_time()
    budget.took(1e9)
    assert budget.allows_another()
