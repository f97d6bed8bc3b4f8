import gc
import signal
import threading

import pytest

from launchers import stop_requests
from tests.waiting import DEADLINE


@pytest.fixture
def ignored():
  """SIGHUP as nohup leaves it."""
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  yield
  signal.signal(signal.SIGHUP, before)


def test_a_signal_asks_to_stop_and_afterwards_does_what_it_did_before():
  before = signal.getsignal(signal.SIGTERM)
  with stop_requests.collected() as asked:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(stop_requests.STACKS)
  assert asked == [signal.SIGTERM] and asked.stacks
  assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
  'number, code', [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_is_raised_and_afterwards_does_what_it_did_before(number, code):
  before = signal.getsignal(number)
  with pytest.raises(stop_requests.StopRequested) as stop, stop_requests.raised():
    signal.raise_signal(number)
  assert stop.value.exit_code == code
  assert signal.getsignal(number) == before


def test_a_signal_whose_exception_python_drops_comes_again():
  def collecting(phase, info):
    gc.callbacks.remove(collecting)
    signal.raise_signal(signal.SIGINT)

  gc.callbacks.append(collecting)
  with pytest.raises(stop_requests.StopRequested) as stop, stop_requests.raised():
    gc.collect()
    threading.Event().wait(DEADLINE)
  assert stop.value.exit_code == 130


def test_a_launch_under_nohup_outlives_its_terminal(ignored):
  with stop_requests.collected() as asked:
    signal.raise_signal(signal.SIGHUP)
  assert asked == []
  with stop_requests.raised():
    signal.raise_signal(signal.SIGHUP)
