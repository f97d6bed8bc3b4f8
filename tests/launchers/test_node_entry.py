"""The process of a node, in a process of its own."""

import os
import subprocess
import sys

import cloudpickle
import pytest
from absl import logging

from environments import entry
from launchers import guard
from launchers.child_process import NodeProcess
from rundir.errors import NonRetryableError
from tests.agents.subprocesses import run_python
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE, wait_until

_NODE = """
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
from absl import flags
from launchers import node_entry
from nodes.runtime import activity

def node():
  soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
  beats = []
  node_entry.begin_heartbeat(beats.append)
  with activity.doing(activity.RESTORING):
    print(soft > 100, beats[-1].doing, flush=True)

flags.FLAGS(sys.argv[:1])
os._exit(node_entry.run(lambda: node))
"""


def test_a_node_may_open_many_files_and_announces_that_it_will_be_silent():
  assert run_python('-c', _NODE).splitlines()[-1] == 'True restoring a checkpoint'


def _chatty(written):
  def node():
    print('a line', flush=True)
    print('another', file=sys.stderr)
    logging.info('a third')
    written.write_text('goes on')
    raise NonRetryableError('its traceback is lost as well')

  return node


def test_a_node_goes_on_and_keeps_its_exit_code_while_its_log_is_on_a_full_disk(tmp_path):
  payload, written = tmp_path / 'node.pkl', tmp_path / 'written'
  payload.write_bytes(cloudpickle.dumps(_chatty(written)))
  environment = {**os.environ, 'PYTHONPATH': entry.python_path()}
  with open('/dev/full', 'wb') as log:
    child = NodeProcess(sys.executable, str(payload), environment, log, guard.new_marks().start)
  wait_until(lambda: child.exit_code() is not None)
  assert child.exit_code() == NonRetryableError.exit_code and written.exists()


_FORKING = """
import multiprocessing, os, signal, sys, time
from absl import flags
from launchers import node_entry
from nodes.runtime import lifecycle
from tests.waiting import wait_until

def node():
  worker = multiprocessing.get_context('fork').Process(target=time.sleep, args=(50,))
  worker.start()
  worker.terminate()
  worker.join(30)
  assert worker.exitcode == -signal.SIGTERM, worker.exitcode
  print('asked to stop:', lifecycle.stop_event().wait(1), flush=True)
  os.kill(os.getpid(), signal.SIGTERM)
  print('asked to stop:', lifecycle.stop_event().wait(60), flush=True)

flags.FLAGS(sys.argv[:1])
os._exit(node_entry.run(lambda: node))
"""


def test_a_signal_to_a_worker_that_a_node_forked_is_none_to_the_node():
  lines = run_python('-c', _FORKING).splitlines()
  assert lines == ['asked to stop: False', 'asked to stop: True']


_THREADS = """
import glob, threading
from launchers import node_entry
from launchers.stop_requests import STACKS_OF_STUCK
from tests.waiting import wait_until

def receivers():
  states = (open(path).read() for path in glob.glob('/proc/self/task/*/status'))
  blocked = (int(state.partition('SigBlk:')[2].split()[0], 16) for state in states)
  return sum(not mask >> STACKS_OF_STUCK - 1 & 1 for mask in blocked)

node_entry.begin_heartbeat(lambda beat: None)
import jax
jax.devices()  # The runtime has threads of its own.
wait_until(lambda: receivers() == 1)  # The thread has begun.
assert threading.active_count() < len(glob.glob('/proc/self/task/*'))
print('one', flush=True)
"""


def test_of_all_threads_only_one_of_python_writes_the_stacks_of_a_stuck_process():
  assert run_python('-c', _THREADS).splitlines()[-1] == 'one'


_BUSY = """
import os, threading
from launchers import node_entry
from launchers.stop_requests import STACKS

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
node_entry.begin_heartbeat(lambda beat: None)
asked = threading.Event()

def ask():
  for _ in range(500):
    os.kill(os.getpid(), STACKS)
    asked.wait(0.002)
  asked.set()

def called(depth):
  return called(depth - 1) if depth else asked.is_set()

threading.Thread(target=ask).start()
while not eval('called(10)'):  # New code, and new frames, all the time.
  pass
print('alive', flush=True)
"""


def test_a_request_for_stacks_does_not_crash_a_process_that_is_busy_in_python():
  assert run_python('-c', _BUSY).splitlines()[-1] == 'alive'


_LOOKED = """
import threading
from launchers import node_entry
from nodes.runtime import lifecycle

looked, enumerate = threading.Event(), threading.enumerate

def look():
  threads = enumerate()
  looked.set()
  return threads

threading.enumerate = look
"""
_LEAVER = """
def first():
  looked.wait()
  lifecycle.run_before_exit(last)

def last():
  threading.Event().wait(0.5)
  print('written', flush=True)

lifecycle.run_before_exit(first)
node_entry._leave(0)
"""


def test_a_process_finishes_pending_work_while_it_exits():
  assert run_python('-c', _LOOKED + _LEAVER) == 'written\n'


_HOLDER = """
with lifecycle.exit_held():
  threading.Thread(target=node_entry._leave, args=(0,)).start()
  looked.wait()
  threading.Event().wait(0.5)
  print('written', flush=True)
threading.Event().wait()
"""


def test_a_process_does_not_exit_while_it_prepares_pending_work():
  assert run_python('-c', _LOOKED + _HOLDER) == 'written\n'


_FAILING = """
import os, signal, sys, threading
from absl import flags
from launchers import node_entry

class StatusNotOk(Exception):
  code = sys.argv.pop()

def node():
  if (seconds := float(sys.argv[1])) < 60:
    threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGTERM]).start()
  raise StatusNotOk('Cancelled')

flags.FLAGS(sys.argv[:1])
code = node_entry.run(lambda: node)
sys.stdout.flush()
os._exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
  'code, request_seconds, ends_with',
  [
    ('StatusCode.CANCELLED', 0.2, 0),
    ('StatusCode.UNAVAILABLE', 0.2, 0),
    ('StatusCode.CANCELLED', 99, 1),
    ('StatusCode.INTERNAL', 99, 1),
  ],
)
def test_only_a_call_that_a_stop_cut_off_is_no_failure(code, request_seconds, ends_with):
  process = subprocess.run(
    [sys.executable, '-c', _FAILING, str(request_seconds), code],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert process.returncode == ends_with, process.stderr
  assert ('Traceback' in process.stderr) is bool(ends_with)
