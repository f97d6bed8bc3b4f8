import multiprocessing
import os
import subprocess
import time

from launchers import guard
from tests.launchers.contract import runs

DEADLINE = 60


def test_what_was_started_meanwhile_is_ended_whatever_its_session_and_nothing_else():
  earlier = subprocess.Popen(['sleep', '1000'])
  with guard.swept():
    orphan = int(subprocess.check_output('setsid sleep 1000 > /dev/null & echo $!', shell=True))
    started = subprocess.Popen(['sleep', '1000'])
    fork = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))
    fork.start()
    assert all(map(runs, (orphan, started.pid, fork.pid)))
  end = time.monotonic() + DEADLINE
  while any(map(runs, (orphan, started.pid, fork.pid))):
    assert time.monotonic() < end
  assert guard.VARIABLE not in os.environ
  assert earlier.poll() is None
  earlier.kill()
  for process in (earlier, started):
    process.wait()
  fork.join()


def test_a_mark_from_outside_is_kept_for_later_commands(monkeypatch):
  monkeypatch.setenv(guard.VARIABLE, 'outer;')
  with guard.swept():
    assert os.environ[guard.VARIABLE] != 'outer;'
  assert os.environ[guard.VARIABLE] == 'outer;'
