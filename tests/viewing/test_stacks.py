import dataclasses
import functools
import json
import os
import signal
import subprocess
import sys

import pytest

import watch
from rundir import run_directory
from tests.waiting import DEADLINE, alive, wait_until
from viewing import stacks

_DRIVER = """
import sys
from launchers import terminal
from launchers.local import local_mp
from launchers.placement import Resources
from tests.launchers import nodes
from tests.viewing.test_stacks import record
run_dir = sys.argv[1]
record(run_dir)
program = nodes.program((nodes.Blocked, True, run_dir + '/pid'), (nodes.Locked, True, run_dir + '/pid2'))
with terminal.shown(program, 'test', run_dir) as callbacks:
  local_mp.launch(program, {l: Resources() for l in program.groups}, run_dir, callbacks=callbacks)
"""


@dataclasses.dataclass
class Config:
  run_dir: str = ''


def record(path):
  run_directory.write_record(str(path), 'test', {}, vars(Config()))


@pytest.fixture
def run_dir(tmp_path):
  launcher = subprocess.Popen(
    [sys.executable, '-c', _DRIVER, str(tmp_path)], stdout=subprocess.DEVNULL
  )
  try:
    for name in ('pid', 'pid2'):
      wait_until((tmp_path / name).exists, alive(launcher), DEADLINE)
    yield tmp_path
  finally:
    # Signals that arrive together count as one. The second kills.
    again = functools.partial(launcher.send_signal, signal.SIGINT)
    wait_until(lambda: launcher.poll() is not None, again, DEADLINE, poll=0.1)
  assert run_directory.launcher_of(str(tmp_path)) is None


@pytest.mark.slow
def test_every_node_shows_its_stacks_and_runs_on(run_dir, capsys):
  """One node waits in a Courier call, the other holds the interpreter lock."""
  for _ in range(2):
    assert watch.main([str(run_dir), '--stacks']) == 0
    _, echo, blocked, locked = capsys.readouterr().out.split('--- ')
    assert echo.startswith('echo/0\n') and 'Current thread' in echo
    assert blocked.startswith('node0/0\n') and 'nodes.py' in blocked
    assert locked.startswith('node1/0\n') and '_hold_the_interpreter_lock' in locked


@pytest.mark.slow
def test_one_node_may_be_named(run_dir, capsys):
  assert watch.main([str(run_dir), '--stacks=node0/0']) == 0
  assert capsys.readouterr().out.count('--- ') == 1
  assert watch.main([str(run_dir), '--stacks=node7/0']) == 2
  assert "has no node 'node7/0'; it has echo/0, node0/0, node1/0." in capsys.readouterr().err


def test_a_run_that_has_ended_has_no_stacks(tmp_path, capsys):
  record(tmp_path)
  assert watch.main([str(tmp_path), '--stacks']) == 2
  assert 'no launcher supervises this run now' in capsys.readouterr().err


def test_a_directory_without_a_run_has_no_stacks(tmp_path, capsys):
  assert watch.main([str(tmp_path / 'x'), '--stacks']) == 2
  assert 'there is no such directory' in capsys.readouterr().err
  record(tmp_path)
  assert watch.main([str(tmp_path), '--stacks=actor/0']) == 2
  assert "has no node 'actor/0'; no node has written a log yet." in capsys.readouterr().err


@pytest.mark.parametrize(
  'scancel, said',
  [
    (None, 'scancel cannot be run (No such file or directory)'),
    (
      '#!/bin/sh\necho "scancel: error: Invalid job id 7" >&2; exit 1',
      'launcher: Invalid job id 7',
    ),
  ],
)
def test_a_slurm_job_that_cannot_be_signalled(tmp_path, monkeypatch, scancel, said):
  monkeypatch.setenv('PATH', str(tmp_path))
  if scancel:
    (tmp_path / 'scancel').write_text(scancel)
    (tmp_path / 'scancel').chmod(0o755)
  _refused(tmp_path, {'pid': 1, 'host': 'x', 'slurm_job': '7'}, said)


def test_a_launcher_within_a_slurm_job_is_not_that_of_the_job(tmp_path, monkeypatch):
  monkeypatch.setenv('SLURM_JOB_ID', '7')  # As of salloc, or of a script of the user's.
  run_directory.record_launcher(str(tmp_path))
  assert run_directory.launcher_of(str(tmp_path))['slurm_job'] == ''


def test_the_launcher_of_another_user_is_not_signalled(tmp_path, monkeypatch):
  def kill(pid, number):
    raise PermissionError

  monkeypatch.setattr(os, 'kill', kill)
  launcher = {'pid': 1, 'host': os.uname().nodename, 'slurm_job': ''}
  _refused(tmp_path, launcher, 'process 1, belongs to another user')


def _refused(path, launcher, said):
  record(path)
  (path / 'launcher.json').write_text(json.dumps(launcher))
  with pytest.raises(ValueError) as error:
    [*stacks.collect(str(path))]
  assert said in str(error.value) and '\n' not in str(error.value)
