"""What nodes write, in the launcher's terminal."""

import contextlib
import errno
import io
import os
import threading

import launchpad as lp
import pytest

from launchers import node_output
from launchers.node_output import NodeOutput
from tests.terminals import FORBIDDEN, HOSTILE
from tests.waiting import DEADLINE, wait_until


@pytest.fixture
def logs(tmp_path):
  """The logs of two nodes; the first has a line already."""
  (tmp_path / 'a').write_bytes(b'earlier\n')
  return {'worker/0': str(tmp_path / 'a'), 'worker/1': str(tmp_path / 'b')}


def _append(path, content):
  with open(path, 'ab') as f:
    f.write(content)


def _copied(logs, *contents):
  """Returns what is shown of contents written to the first log, one after the other."""
  out = io.StringIO()
  output = NodeOutput(logs, out)
  output.start()
  for content in contents:
    before = len(out.getvalue())
    _append(logs['worker/0'], content)
    wait_until(lambda seen=before: len(out.getvalue()) > seen)
  output.close()
  assert not output.thread.is_alive()
  return out.getvalue()


def test_every_line_comes_after_the_name_of_its_node(logs):
  out = io.StringIO()
  output = NodeOutput(logs, out)
  output.start()
  _append(logs['worker/0'], b'one\ntwo\n')
  _append(logs['worker/1'], b'three')  # A last line without an end.
  output.close()
  assert out.getvalue().splitlines() == [
    '[worker/0] one',
    '[worker/0] two',
    '[worker/1] three',
  ]


def test_a_line_is_shown_whole_and_of_a_progress_bar_the_last_state(logs):
  assert _copied(logs, b'whole\nha', b'lf\n10%\r20%\r\n', b'\xff\n') == (
    '[worker/0] whole\n[worker/0] half\n[worker/0] 20%\n[worker/0] \ufffd\n'
  )


def test_a_log_that_was_truncated_is_read_from_its_start(logs):
  out = io.StringIO()
  output = NodeOutput(logs, out)
  output.start()
  _append(logs['worker/0'], b'before\n')
  wait_until(lambda: out.getvalue())
  os.truncate(logs['worker/0'], 0)
  _append(logs['worker/0'], b'after\n')
  output.close()
  assert out.getvalue().endswith('[worker/0] after\n')


def test_a_log_that_cannot_be_read_for_a_moment_is_tried_again(logs, monkeypatch):
  failures = [OSError(errno.EMFILE, 'Too many open files')] * 3

  def sometimes(*args):
    if failures:
      raise failures.pop()
    return open(*args)

  monkeypatch.setattr(node_output, 'open', sometimes, raising=False)
  assert _copied(logs, b'one\n') == '[worker/0] one\n' and not failures


def test_old_output_is_skipped_for_a_slow_terminal(logs, monkeypatch):
  monkeypatch.setattr(node_output, '_MAX_BEHIND', 100)
  monkeypatch.setattr(node_output, '_CHUNK', 6)
  output = NodeOutput(logs, out := io.StringIO())
  _append(logs['worker/0'], b'x' * 1000 + b'\nlast\n')
  output.start()
  output.close()
  first, *rest = out.getvalue().splitlines()
  assert first == f'[worker/0] (1,000 bytes are left out here; see {logs["worker/0"]})'
  assert rest == ['[worker/0] ', '[worker/0] last']


def test_what_a_node_writes_does_not_control_the_terminal(logs):
  shown = _copied(logs, f'a\tb {HOSTILE}\n'.encode())
  assert shown.startswith('[worker/0] a\tb ') and 'pwned' in shown
  assert not [each for each in FORBIDDEN if each in shown.encode()]


@pytest.mark.parametrize(
  'no_color, begins', [('', '\x1b[36m[worker/0]\x1b[0m '), ('1', '[worker/0] ')]
)
def test_names_have_colours_on_a_terminal_unless_the_user_wants_none(
  logs, monkeypatch, no_color, begins
):
  monkeypatch.setenv('NO_COLOR', no_color)
  reader, writer = os.openpty()
  with os.fdopen(writer, 'w') as terminal, os.fdopen(reader, 'rb', buffering=0) as screen:
    output = NodeOutput(logs, terminal)
    output.start()
    _append(logs['worker/0'], b'line\n')
    output.close()
    assert screen.read(1000).decode() == f'{begins}line\r\n'


def test_a_terminal_that_reads_nothing_blocks_only_the_thread(logs, monkeypatch):
  monkeypatch.setattr(node_output, '_CLOSE_SECONDS', 0.1)
  reader, writer = os.pipe()
  with os.fdopen(reader, 'rb') as screen, open(writer, 'w') as terminal:
    output = NodeOutput(logs, terminal)
    output.start()
    _append(logs['worker/0'], (b'x' * 1000 + b'\n') * 200)  # More than a pipe holds.
    output.close()
    assert output.thread.is_alive()
    drained = threading.Thread(target=screen.read, daemon=True)
    drained.start()
    output.thread.join(DEADLINE)
    assert not output.thread.is_alive()
    terminal.close()
    drained.join(DEADLINE)


def test_the_copying_ends_with_its_terminal(logs, monkeypatch):
  failures = []
  monkeypatch.setattr(threading, 'excepthook', failures.append)
  reader, writer = os.pipe()
  os.close(reader)
  terminal = open(writer, 'w')  # noqa: SIM115  fails to close what it could not write
  output = NodeOutput(logs, terminal)
  output.start()
  _append(logs['worker/0'], b'line\n')
  output.thread.join(DEADLINE)
  assert not output.thread.is_alive() and not failures
  with contextlib.suppress(BrokenPipeError):
    terminal.close()


def test_every_node_of_a_program_has_a_log():
  program = lp.Program('test')
  with program.group('worker'):
    for _ in range(2):
      program.add_node(lp.PyNode(print))
  assert node_output.logs_of(program, '/run') == {
    'worker/0': '/run/logs/worker-0.log',
    'worker/1': '/run/logs/worker-1.log',
  }
