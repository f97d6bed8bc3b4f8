"""Readers of run directories that are damaged, or a stranger's, report a sentence or show less."""

import contextlib
import itertools
import json
import os
import random
import shutil

import pytest
from rich.console import Console

from launchers import view
from rundir import curves, run_directory, run_end, sweep_directory
from tests.viewing.web import serving
from viewing import screen
from viewing.progress import Progress
from viewing.trackers import stream
from viewing.web.state import State

FILES = (
  *('config.json', 'summary.json', 'end.json', 'graph.json', 'launcher.json', 'restarts.csv'),
  *('processes.csv', 'logs/inference_learner-0.csv', 'logs/evaluator-0.csv'),
  *('logs/inference_learner-0.log', 'videos/000000001000.gif'),
)
NESTED = '[' * 100_000 + ']' * 100_000
WRONG = (None, True, '', 'x', [], {}, -1, 0, 1e300, -(10**20), 10**400, float('nan'), float('inf'))
CELLS = ('', 'x', 'nan', '-inf', '0', '1e400', '-' + '9' * 20, '9' * 5000, '"', '\x1b]0;x\x07')


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns the directory of a run that has ended, and been restarted, with every file of FILES."""
  run_dir = tmp_path_factory.mktemp('whole') / 'run'
  shutil.copytree(serving.RUNS[0], run_dir)
  for path in [*run_dir.glob('logs/*'), run_dir / 'processes.csv']:
    path.write_text(''.join(path.read_text().splitlines(keepends=True)[:20]))
  counts = dict.fromkeys(('actor_steps', 'environment_frames', 'learner_steps'), 1000)
  summary = {'evaluator_return': 0.5, 'seconds': 9.0, 'learners': {'a/0': counts}, **counts}
  (run_dir / 'summary.json').write_text(json.dumps(summary))
  run_end.record_end(str(run_dir), 0, 1.0)
  run_directory.record_launcher(str(run_dir))
  run_directory.record_restart(str(run_dir), 'actor/0')
  (run_dir / 'videos').mkdir(exist_ok=True)
  (run_dir / 'videos' / '000000001000.gif').write_bytes(b'GIF89a')
  assert all((run_dir / name).is_file() for name in FILES)
  return run_dir


def _watched(run_dir):
  return _shown(run_dir, 1)


def _compared(run_dir):
  return _shown(run_dir, 2)


def _shown(run_dir, count):
  run = Progress(run_dir)
  console = Console(width=100, file=open(os.devnull, 'w'))  # noqa: SIM115
  console.print(screen.show([run] * count, console))
  return [screen.line(run), run_end.result(run_dir)]


def _page(run_dir):
  state = State([run_dir])
  read = state.read()
  nodes = [state.node(0, node[0]) for node in read['runs'][0]['nodes'][:4]]
  return json.dumps([read, nodes, state.video(0)], allow_nan=False)


def _exported(run_dir):
  read = stream.Stream(run_dir, 0.0, {})
  while read.read(flush=True):
    pass
  return [stream.header(run_dir), stream.outcome(run_dir)]


def _others(run_dir):
  run_directory.delete_launcher(run_dir)
  run_directory.has_checkpoints(run_dir)
  return [
    sweep_directory.outcome(run_dir.removesuffix('.json')),
    run_directory.program_of(run_dir),
    run_directory.launcher_of(run_dir),
    curves.last_second(run_dir),
    curves.training_returns(run_dir),
    curves.evaluator_returns(run_dir),
  ]


READERS = (_watched, _compared, _page, _exported, _others)


def _directory(path, chance):
  path.unlink()
  path.mkdir()


def _pipe(path, chance):
  path.unlink()
  os.mkfifo(path)


def _socket_of_nobody(path, chance):
  path.unlink()
  path.symlink_to(path.parent / 'nothing')


def _bytes(change):
  return lambda path, chance: path.write_bytes(change(path.read_bytes(), chance))


def _spliced(content, chance):
  """Overwrites a few places of a file with bytes that a disk or a stranger may put there."""
  content = bytearray(content)
  for _ in range(chance.randint(1, 8)):
    at = chance.randrange(len(content) + 1)
    new = chance.choice((b'\0', b'\0\n', b'\r', b'\xff\xfe', b'"', b'{', b'\n\n', b',' * 40))
    content[at : at + chance.randint(0, 9)] = new
  return bytes(content)


def _retyped(content, chance):
  """Replaces some values of a JSON file, or some cells of a CSV file, with others."""
  try:
    value = json.loads(content)
  except ValueError:
    lines = content.decode().split('\n')
    for _ in range(9):
      row = chance.randrange(len(lines))
      cells = lines[row].split(',')
      cells[chance.randrange(len(cells))] = chance.choice(CELLS)
      lines[row] = ','.join(cells)
    return '\n'.join(lines).encode()
  for _ in range(chance.randint(1, 5)):
    holder = value
    while True:
      keys = list(holder) if isinstance(holder, dict) else range(len(holder))
      if not keys:
        break
      key = chance.choice(keys)
      if not isinstance(holder[key], dict | list) or chance.random() < 0.3:
        holder[key] = chance.choice(WRONG)
        break
      holder = holder[key]
  return json.dumps(value).encode()


ALWAYS = {
  'missing': lambda path, chance: path.unlink(),
  'a directory': _directory,
  'a pipe': _pipe,
  'a broken link': _socket_of_nobody,
  'empty': _bytes(lambda content, chance: b''),
  'null': _bytes(lambda content, chance: b'null'),
  'a list': _bytes(lambda content, chance: b'[]'),
  'an empty object': _bytes(lambda content, chance: b'{}'),
  'nested': _bytes(lambda content, chance: NESTED.encode()),
  'nested by a few': _bytes(lambda content, chance: b'{"config": ' * 500 + b'1' + b'}' * 500),
  'NULs': _bytes(lambda content, chance: bytes(300)),
  'NULs at the end': _bytes(lambda content, chance: content + bytes(300)),
  'a header with a NUL': _bytes(lambda content, chance: b'time,\0node\n' + content),
  'a long line': _bytes(lambda content, chance: b'x' * 200_000 + b'\n' + content),
}
CHANCE = {
  'half': _bytes(lambda content, chance: content[: chance.randrange(len(content))]),
  'spliced': _bytes(_spliced),
  'retyped': _bytes(_retyped),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', FILES)
def test_a_damaged_file_of_a_run_is_a_sentence_or_is_not_shown(whole, tmp_path, name):
  chance = random.Random(name)
  cases = [*ALWAYS.items(), *itertools.chain(*([each] * 4 for each in CHANCE.items()))]
  failed = []
  for number, (how, damage) in enumerate(cases):
    run_dir = tmp_path / str(number)
    shutil.copytree(whole, run_dir)
    with contextlib.suppress(UnicodeDecodeError):  # A video has no cells.
      damage(run_dir / name, chance)
    for reader in READERS:
      try:
        reader(str(run_dir))
      except ValueError as error:
        if str(run_dir) not in str(error) or '\n' in str(error):
          failed.append((how, reader.__name__, repr(error)[:200]))
      except Exception as error:
        failed.append((how, reader.__name__, repr(error)[:200]))
    shutil.rmtree(run_dir)
  assert not failed


@pytest.mark.parametrize('num_steps', [0, -1, 'x', None, [], True, 10**400, float('nan')])
def test_a_number_of_steps_that_is_none_leaves_the_progress_open(whole, tmp_path, num_steps):
  shutil.copytree(whole, tmp_path / 'run')
  record = json.loads((whole / 'config.json').read_text())
  record['config']['num_steps'] = num_steps
  (tmp_path / 'run' / 'config.json').write_text(json.dumps(record))
  assert dict(view.figures(Progress(str(tmp_path / 'run')).status))['progress'] == '0%'
  for reader in READERS:
    reader(str(tmp_path / 'run'))
