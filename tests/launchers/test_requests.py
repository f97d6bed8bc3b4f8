import signal

import pytest

from launchers import requests


@pytest.fixture
def ignored():
  """SIGHUP as nohup leaves it."""
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  yield
  signal.signal(signal.SIGHUP, before)


def test_a_signal_asks_to_stop_and_afterwards_does_what_it_did_before():
  before = signal.getsignal(signal.SIGTERM)
  with requests.collected() as asked:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(requests.STACKS)
  assert asked == [signal.SIGTERM] and asked.stacks
  assert signal.getsignal(signal.SIGTERM) == before


def test_a_launch_under_nohup_outlives_its_terminal(ignored):
  with requests.collected() as asked:
    signal.raise_signal(signal.SIGHUP)
  assert asked == []
