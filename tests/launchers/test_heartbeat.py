import subprocess
import sys
import threading
import time
import types

import pytest

from launchers import heartbeat
from nodes.runtime import activity
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE

_OUT_OF_DESCRIPTORS = """
import resource, threading, time
import pytest

from launchers import heartbeat
from nodes.runtime import activity
from tests.waiting import wait_until

beats, failures = [], []
heartbeat.PERIOD_SECONDS = 0.001

class HeartbeatSender(heartbeat.HeartbeatSender):
  def _beat(self):
    try:
      return super()._beat()
    except OSError as error:
      failures.append(error.errno)
      raise

HeartbeatSender(beats.append).start()
wait_until(lambda: beats)
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
wait_until(lambda: failures)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
before = len(beats)
wait_until(lambda: len(beats) > before)
print(*set(failures))
"""


def test_a_node_that_was_out_of_descriptors_for_a_moment_still_has_a_heartbeat():
  done = subprocess.run(
    [sys.executable, '-c', _OUT_OF_DESCRIPTORS],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert done.stdout == '24\n', done.stderr


def test_a_beat_has_the_idle_time_of_its_machine():
  beats = []
  sender = heartbeat.HeartbeatSender(beats.append)
  readings = [_idle_seconds(), sender.beat() and beats[0].idle_seconds, _idle_seconds()]
  assert readings == sorted(readings)


def _idle_seconds():
  with open('/proc/uptime') as f:
    return float(f.read().split()[1])


_LARGE = """
import sys
large = b'x' * (200 << 20)
print(flush=True)
sys.stdin.read()
"""


def test_a_beat_counts_what_the_other_processes_of_a_node_use(monkeypatch):
  monkeypatch.setattr(activity, 'parts', set())
  beats = []
  sender = heartbeat.HeartbeatSender(beats.append)
  with subprocess.Popen(
    [sys.executable, '-c', _LARGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
  ) as other:
    other.stdout.readline()
    sender.beat()
    activity.parts.add(other.pid)
    sender.beat()
    other.stdin.close()
  sender.beat()  # The other one has ended.
  without, together, after = (beat.memory_mib for beat in beats)
  assert together > without + 190 and after < without + 100


def test_every_beat_after_the_work_returned_says_so(monkeypatch):
  monkeypatch.setattr(heartbeat, 'PERIOD_SECONDS', 0.001)
  beats, after_return, enough = [], [], threading.Event()

  def send(beat):
    beats.append(beat.returned)
    after_return.extend([beat.returned] * (True in beats))
    if len(after_return) > 20:
      enough.set()
      raise OSError('the reader has gone')

  heart = heartbeat.HeartbeatSender(send)
  heart.start()
  heart.returned()
  assert enough.wait(60)
  assert beats[0] is False
  assert all(after_return)


def test_time_spent_suspended_is_mostly_no_time_without_progress(monkeypatch):
  now = [100.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: 0.0)
  monkeypatch.setattr(heartbeat, 'time', clock)

  def mark():
    monkeypatch.setattr(activity, '_mark', activity.Mark(activity.PLAYING, now[0], now[0]))

  beats = []
  heart = heartbeat.HeartbeatSender(beats.append)
  mark()
  for seconds in (1.0, 1.0, 1000.0, 1.0):
    now[0] += seconds
    heart.beat()
  mark()
  for seconds in (1000.0, 1.0):
    now[0] += seconds
    heart.beat()
  assert [beat.unmarked for beat in beats] == [1.0, 2.0, 5.0, 6.0, 3.0, 4.0]


@pytest.mark.parametrize(
  'doing, longest',
  [
    (activity.STARTING, 39.0),  # Imports hold the interpreter lock.
    (activity.RESTORING, 1e6),  # So does Reverb, while it reads a checkpoint.
    (activity.COMPILING, 9.0),
    (activity.SERVING, 9.0),
  ],
)
def test_how_long_a_node_may_be_silent_depends_on_its_activity(monkeypatch, doing, longest):
  now = time.monotonic()
  monkeypatch.setattr(activity, '_mark', activity.Mark(doing, now, now))
  beats = []
  heartbeat.HeartbeatSender(beats.append).beat()
  beat = heartbeat.unpack(beats[0].pack())
  assert heartbeat.find_hang(beat, longest, timeout=10.0) == ('', 0.0)
  if longest < 1e6:
    how, seconds = heartbeat.find_hang(beat, longest + 2.0, timeout=10.0)
    assert how.startswith('has sent no heartbeat') and seconds == longest + 2.0
