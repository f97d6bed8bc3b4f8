"""What a node has freed does not pile up in its process."""

import platform

import pytest

from launchers import allocator
from tests.agents.subprocesses import run_python

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='glibc is what it limits')

# A node that has more threads than arenas, and writes checkpoints: each from a thread of its own,
# which copies leaves that are too small to be given back one by one.
NODE = """
import ctypes, os, re, sys, threading
import numpy as np
from absl import flags
from launchers import node_entry

MIB = 1 << 20

def resident():
  with open('/proc/self/statm') as f:
    return int(f.read().split()[1]) * os.sysconf('SC_PAGESIZE') // MIB

def arenas():
  libc = ctypes.CDLL(None)
  libc.fopen.restype = ctypes.c_void_p
  file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b'w'))
  libc.malloc_info(0, file)
  libc.fclose(file)
  with open(sys.argv[1]) as f:
    return f.read().count('<heap nr=')

def write_checkpoint():
  leaves = [np.ones(6 * MIB, np.uint8) for _ in range(3)]
  del leaves

def node():
  end, held = threading.Event(), []

  def live():
    held.append(bytearray(100_000))
    end.wait()

  threads = [threading.Thread(target=live) for _ in range(40)]
  for thread in threads:
    thread.start()
  del [np.ones(30 * MIB, np.uint8)][0]  # From now on glibc keeps blocks of that size.
  before = resident()
  for _ in range(40):
    thread = threading.Thread(target=write_checkpoint)
    thread.start()
    thread.join()
  print(arenas(), resident() - before, flush=True)
  end.set()

flags.FLAGS(sys.argv[:1])
code = node_entry.run(lambda: node)
sys.stdout.flush()
os._exit(code)
"""


def measure(tmp_path, **environment):
  printed = run_python('-c', NODE, str(tmp_path / 'malloc.xml'), **environment)
  arenas, kept = map(int, printed.split()[-2:])
  return arenas, kept


def test_threads_that_come_and_go_do_not_each_leave_their_memory_behind(tmp_path):
  arenas, kept = measure(tmp_path)
  assert arenas <= allocator.ARENAS
  assert kept < 25 * allocator.ARENAS  # MiB, of the 18 that a checkpoint allocates.


@pytest.mark.parametrize(
  'environment',
  [{'MALLOC_ARENA_MAX': '6'}, {'GLIBC_TUNABLES': 'glibc.malloc.arena_max=6'}],
  ids=lambda environment: next(iter(environment)),
)
def test_a_users_own_limit_is_kept(tmp_path, environment):
  arenas, _ = measure(tmp_path, **environment)
  assert arenas == 6
