import contextlib
import multiprocessing
import pathlib
import resource
import subprocess
import sys
import time

import psutil

from launchers import guard
from tests.launchers.contract import runs
from tests.waiting import wait_until


def test_what_was_started_meanwhile_is_ended_and_nothing_else():
  with contextlib.ExitStack() as ended:  # Even if an assertion fails.

    def sleeper():
      process = ended.enter_context(subprocess.Popen(['sleep', '1000']))
      ended.callback(process.kill)
      return process

    earlier = sleeper()
    with guard.swept():
      # Its parent exits at once; it has a session and environment variables of its own.
      alone = 'setsid env -i sleep 1000 > /dev/null & echo $!'
      orphan = int(subprocess.check_output(alone, shell=True))
      ended.callback(_kill, psutil.Process(orphan))
      started = sleeper()
      fork = multiprocessing.get_context('fork').Process(target=time.sleep, args=(1000,))
      fork.start()
      ended.callback(fork.join)
      ended.callback(fork.kill)
      assert all(map(runs, (orphan, started.pid, fork.pid)))
    wait_until(lambda: not any(map(runs, (orphan, started.pid, fork.pid))))
    assert earlier.poll() is None


_OWNER = """
import sys, time
from launchers import guard
kept = guard.Guard(sys.executable, sys.argv[1], directory=sys.argv[2])
print('ready', flush=True)
time.sleep(1000)
"""


def test_a_directory_is_removed_whatever_ends_its_owner(tmp_path):
  directory, root = tmp_path / 'mine', str(pathlib.Path(guard.__file__).parent.parent)
  (directory / 'inner').mkdir(parents=True)
  (directory / 'inner' / 'node.pkl').touch()
  owner = subprocess.Popen(
    [sys.executable, '-c', _OWNER, root, str(directory)], stdout=subprocess.PIPE, cwd=root
  )
  try:
    owner.stdout.readline()
    assert directory.exists()
  finally:
    owner.kill()
    owner.communicate()
  wait_until(lambda: not directory.exists())
  assert tmp_path.exists()


def _kill(process):
  with contextlib.suppress(psutil.NoSuchProcess):
    process.kill()


def test_a_mark_from_outside_is_kept_for_later_commands():
  before = resource.getrlimit(resource.RLIMIT_RTTIME)
  (outer,) = guard.new_marks()[:1]
  guard.put(outer)
  try:
    with guard.swept():
      assert outer not in _marks_of_a_child()
    assert outer in _marks_of_a_child()
  finally:
    resource.setrlimit(resource.RLIMIT_RTTIME, before)


def _marks_of_a_child():
  show = 'import resource; print(*resource.getrlimit(resource.RLIMIT_RTTIME))'
  return [*map(int, subprocess.check_output([sys.executable, '-c', show]).split())]
