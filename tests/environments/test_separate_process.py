"""Calls in processes of their own."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from environments import separate_process
from tests.launchers.contract import runs
from tests.waiting import wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent
_STAYS = """
import sys
from environments import separate_process
separate_process.call('tests.environments.calls:stay', sys.argv[1], flag='')
"""


def _call(name, *arguments):
  return separate_process.call(f'tests.environments.calls:{name}', *arguments, flag='--flag=x')


def test_what_a_call_does_to_its_process_does_not_reach_the_caller(tmp_path, capfd):
  before = (
    os.getcwd(),
    dict(os.environ),
    signal.getsignal(signal.SIGINT),
    signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    threading.active_count(),
  )
  assert _call('spoil', str(tmp_path / 'pid')) == 'value'
  after = (
    os.getcwd(),
    dict(os.environ),
    signal.getsignal(signal.SIGINT),
    signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    threading.active_count(),
  )
  assert after == before
  assert not runs(int((tmp_path / 'pid').read_text()))
  assert capfd.readouterr() == ('', 'printed by the environment\n')


def test_a_call_has_the_callers_directory_and_imports_nothing_from_it(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ('random', 'cloudpickle', 'environments'):
    (tmp_path / f'{name}.py').write_text('raise SystemExit("imported from the working directory")')
  directory, path, platforms = _call('where')
  assert (directory, path[0], platforms) == (str(tmp_path), str(ROOT), 'cpu')
  assert not {'', '.', str(tmp_path)} & set(path)


@pytest.mark.parametrize(
  'code, how',
  [
    (0, 'exit code 0'),
    (7, 'exit code 7'),
    (-signal.SIGSEGV, 'SIGSEGV'),
    (-signal.SIGKILL, 'SIGKILL'),
    (-(signal.SIGRTMIN + 5), f'signal {signal.SIGRTMIN + 5}'),
  ],
)
def test_a_call_that_ends_its_process_is_reported_in_one_sentence(code, how):
  with pytest.raises(ValueError) as error:
    _call('end', code)
  assert str(error.value) == f'--flag=x: trying it ended its process with {how}.'


def test_other_errors_come_with_their_traceback():
  with pytest.raises(RuntimeError, match=r'(?s)^--flag=x cannot .*in fail\n.*Error: a bug\n$'):
    _call('fail')


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_a_call_ends_with_its_caller(tmp_path, number):
  pid_file = tmp_path / 'pid'
  caller = subprocess.Popen(
    [sys.executable, '-c', _STAYS, pid_file], cwd=ROOT, stderr=subprocess.DEVNULL
  )
  wait_until(lambda: pid_file.exists() and pid_file.read_text().endswith('\n'))
  caller.send_signal(number)
  assert caller.wait(60) == -number
  wait_until(lambda: not runs(int(pid_file.read_text())))
