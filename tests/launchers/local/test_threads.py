"""A program as threads of one process, which a signal ends."""

import signal
import subprocess
import sys

import pytest

from rundir import run_end
from tests.waiting import DEADLINE, alive, wait_until

_PROGRAM = """
import sys
import launchpad as lp
import launchers
from launchers.engines import Threads

class Waiter:
  def __init__(self, path):
    self._path = path

  def run(self):
    open(self._path, 'w').close()
    lp.wait_for_stop()

program = lp.Program('waiting')
program.add_node(lp.PyClassNode(Waiter, sys.argv[1] + '/waits'), label='waiter')
sys.exit(launchers.launch(program, Threads(), run_dir=sys.argv[1] + '/run'))
"""


@pytest.mark.slow
@pytest.mark.parametrize('number, code', [(signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_is_the_exit_code_and_the_run_directory_stays(tmp_path, number, code):
  process = subprocess.Popen(
    [sys.executable, '-c', _PROGRAM, str(tmp_path)], stderr=subprocess.PIPE, text=True
  )
  wait_until((tmp_path / 'waits').exists, alive(process, process.communicate))
  # The node may run before the launcher notes signals.
  wait_until((tmp_path / 'run' / 'launcher.json').exists, alive(process, process.communicate))
  process.send_signal(number)
  _, errors = process.communicate(timeout=DEADLINE)
  assert process.returncode == code, errors
  assert run_end.end_of(str(tmp_path / 'run'))['exit_code'] == code
