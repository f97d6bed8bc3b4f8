"""Terminals that go, or were never there."""

import contextlib
import os
import subprocess
import sys
import threading

import launchpad as lp
import pytest

from launchers import streams, view
from launchers.follow import Follower
from tests.launchers.test_view import GRAPH, STATUS
from tests.programs_under_test import ROOT
from tests.waiting import DEADLINE


@pytest.fixture
def gone():
  """A file whose reader has gone."""
  reader, writer = os.pipe()
  os.close(reader)
  file = open(writer, 'w')  # noqa: SIM115  fails to close what it could not write
  yield file
  with contextlib.suppress(BrokenPipeError):
    file.close()


def test_a_message_to_a_closed_terminal_is_dropped(gone):
  streams.say('done', gone)


def test_what_a_slow_terminal_has_not_read_is_printed_in_order_at_the_end(unread):
  outlet = streams.Outlet(unread.file)
  for number in range(3):
    outlet.say(f'sentence {number}')
  outlet.close(timeout=0.0)
  assert unread.text() == 'sentence 0\nsentence 1\nsentence 2\n'


def test_a_terminal_that_nobody_reads_fills_no_memory(unread, monkeypatch):
  monkeypatch.setattr(streams, '_WAITING', 2)
  outlet = streams.Outlet(unread.file)
  for number in range(9):
    outlet.say(f'sentence {number}')
  outlet.close(timeout=0.0, last='the report')
  *kept, note, last = unread.text().splitlines()
  assert kept[:2] == ['sentence 0', 'sentence 1'] and len(kept) <= 3
  assert last == 'the report'
  assert note == f'({9 - len(kept)} later messages are left out: nothing read them)'


def test_the_view_ends_with_its_terminal(gone, monkeypatch):
  follower = Follower(lp.Program('test'))
  follower.status = STATUS
  failures = []
  monkeypatch.setattr(threading, 'excepthook', failures.append)
  monkeypatch.setattr(sys, 'stdout', gone)
  shown = view.View(follower, 'title', {}, GRAPH, log_period=0.0)
  shown.start()
  shown.thread.join(DEADLINE)
  assert not shown.thread.is_alive() and not failures


@pytest.mark.program
@pytest.mark.parametrize('closed', ['<&-', '<&- >&- 2>&-'])
def test_a_program_runs_without_standard_streams(tmp_path, closed):
  run_dir = tmp_path / 'run'
  command = f'{sys.executable} launch.py --program=examples/primes.py:make_program'
  done = subprocess.run(
    f'{command} --run_dir={run_dir} {closed}', shell=True, cwd=ROOT, timeout=DEADLINE
  )
  assert done.returncode == 0
  assert '2262 primes below 20000' in (run_dir / 'logs' / 'collector-0.log').read_text()


@pytest.mark.parametrize('closed', ['>&-', '2>&-', '>&- 2>&-'])
def test_a_launch_without_standard_streams_works(closed):
  done = subprocess.run(
    f'{sys.executable} launch.py --dry_run {closed}',
    shell=True,
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  assert done.returncode == 0, done.stderr
  assert 'Traceback' not in done.stderr
  assert ('program sebulba\n\ngroups\n' in done.stdout) is ('>&-' not in closed.split())
