import os
import threading

import pytest

from nodes.runtime import affinity


@pytest.mark.skipif(not hasattr(os, 'sched_getaffinity'), reason='the system has no affinities')
def test_a_thread_and_those_it_begins_share_a_core_and_others_do_not():
  seen = []

  def begin():
    affinity.share_a_core()
    later = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
    later.start()
    later.join()
    seen.append(os.sched_getaffinity(0))

  allowed = os.sched_getaffinity(0)
  thread = threading.Thread(target=begin)
  thread.start()
  thread.join()
  assert seen[0] == seen[1] and len(seen[0]) == 1 and seen[0] <= allowed
  assert os.sched_getaffinity(0) == allowed
