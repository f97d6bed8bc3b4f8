"""Films come every so often, and within a share of the time."""

import pytest

from nodes.runtime import lifecycle
from nodes.runtime.evaluation_budget import FREE_SECONDS
from nodes.runtime.film_schedule import FilmSchedule
from tests.nodes.runtime.test_evaluation_budget import Clock


def film_of(clock, seconds, seen=None):
  """Returns what films for some seconds."""

  def film(should_stop, is_late):
    clock.now += seconds
    if seen is not None:
      seen.append(is_late())
    return b'GIF'

  return film


def running():
  return False


def test_a_film_is_due_once_a_period_has_passed():
  clock = Clock()
  films = FilmSchedule(60.0, 1.0, 0.0, clock)
  assert films.due()
  assert films.make(film_of(clock, 3.0), running, final=False) == b'GIF'
  assert films.seconds == 3.0 and not films.due()
  clock.now += 56.9
  assert not films.due()
  clock.now += 0.1
  assert films.due()


def test_filming_takes_its_share_of_the_time_and_no_second_is_free():
  clock, seen = Clock(), []
  films = FilmSchedule(1.0, 0.05, 0.0, clock)
  films.make(film_of(clock, FREE_SECONDS, seen), running, final=False)
  assert seen == [True]  # It had no more time than that.
  clock.now = 100.0 + FREE_SECONDS / 0.05 - 0.1
  assert not films.due()
  clock.now += 0.2
  assert films.due()
  clock.now += 1000.0  # The film after a long time may take 50 s.
  films.make(film_of(clock, 49.0, seen), running, final=False)
  assert seen == [True, False]


def test_an_error_ends_the_filming_and_not_the_run():
  clock, calls = Clock(), []

  def film(should_stop, is_late):
    calls.append(should_stop)
    raise OSError('no display')

  films = FilmSchedule(1.0, 1.0, 0.0, clock)
  assert films.make(film, running, final=False) is None
  assert films.make(film, running, final=True) is None
  assert calls == [running]


def test_a_stop_of_the_program_is_no_error():
  def film(should_stop, is_late):
    raise lifecycle.Stopped

  with pytest.raises(lifecycle.Stopped):
    FilmSchedule(1.0, 1.0, 0.0, Clock()).make(film, running, final=False)
