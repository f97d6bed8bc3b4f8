"""The gate of a node that is starting."""

import threading

import pytest

from nodes.runtime import gate, rpc
from tests.waiting import DEADLINE


def test_a_call_that_waits_for_long_is_sent_back(monkeypatch):
  monkeypatch.setattr(gate, '_WAIT_SECONDS', 0.01)
  with pytest.raises(RuntimeError) as refused:
    gate.ReadyGate().wait()
  assert rpc.is_transient(refused.value)


def test_calls_wait_until_it_opens():
  opening, passed = gate.ReadyGate(), threading.Event()

  def call():
    opening.wait()
    passed.set()

  threading.Thread(target=call, daemon=True).start()
  assert not passed.is_set()
  opening.open()
  assert passed.wait(DEADLINE)
