"""Exports to the real trackers, which are installed for it; nothing leaves this machine."""

import glob
import json
import os
import pathlib
import signal
import subprocess
import sys

import psutil
import pytest

import watch
from tests.viewing.trackers.runs import GrowingRun
from tests.waiting import DEADLINE, wait_until
from viewing.trackers import environment

HERE = pathlib.Path(__file__).parent
ROOT = os.path.dirname(watch.__file__)
API_KEY = '0123456789abcdef0123456789abcdef01234567'
PNG = bytes.fromhex(
  '89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55'
  '0000000a49444154789c63600000000200014898d9430000000049454e44ae426082'
)
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def place(tmp_path, monkeypatch):
  """The working directory of the exports."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_API_KEY', API_KEY)
  monkeypatch.setenv('MLFLOW_TRACKING_URI', f'sqlite:///{tmp_path}/mlflow.db')
  (tmp_path / 'here').mkdir()
  return tmp_path / 'here'


def begin(tmp_path):
  run = GrowingRun(tmp_path / 'run', env_options='rows=6,api_key=hunter2')
  run.write('graph.svg', '<svg xmlns="http://www.w3.org/2000/svg"/>')
  seconds(run, 0, 12)
  run.process('actor/0', 1.0, cpu_seconds=1.0)
  run.video(90)
  return run


def seconds(run, begin, end):
  for k in range(begin, end):
    run.report('inference_learner/0', k, episode_return=k, actor_steps_per_second=10.0)
    run.report('evaluator/0', k, evaluator_return=k)


def start(run, tracker, place):
  command = [sys.executable, os.path.join(ROOT, 'watch.py'), run.path, f'--to={tracker}']
  return subprocess.Popen(
    [*command, '--period=0.2'],
    cwd=place,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  )


def export(run, tracker, place):
  out, error = start(run, tracker, place).communicate(timeout=600)
  assert 'error' not in error
  return out


def interrupt(run, tracker, place, how):
  """Begins an export, and ends it with a signal once everything has been sent."""
  process = start(run, tracker, place)

  def sent():
    assert process.poll() is None, process.communicate()
    found = glob.glob(os.path.join(glob.escape(run.path), 'trackers', '*.json'))
    return bool(found) and json.loads(pathlib.Path(found[0]).read_text())['count'] == 17

  wait_until(sent, deadline=600)
  if how == signal.SIGKILL:  # Of the exporting process, as by the kernel when memory is short.
    (exporter,) = psutil.Process(process.pid).children()
    exporter.kill()
  else:
    (os.kill if how == signal.SIGTERM else os.killpg)(process.pid, how)  # As a terminal sends it.
  process.communicate(timeout=DEADLINE)
  return process.returncode


def read(tracker, *arguments):
  script = HERE / f'read_{tracker}.py'
  command = [environment.python(tracker, print), script, *arguments]
  return json.loads(
    subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE).stdout
  )


def everything(*places):
  """Returns the content of all files."""
  paths = [path for place in places for path in pathlib.Path(place).rglob('*') if path.is_file()]
  return b''.join(path.read_bytes() for path in paths)


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_mlflow_has_every_measurement_once(tmp_path, place, how):
  run = begin(tmp_path)
  code = interrupt(run, 'mlflow', place, how)
  assert code == 128 + how
  seconds(run, 12, 20)
  (tmp_path / 'run' / 'learning_curve.png').write_bytes(PNG)
  run.end(code=1, finished=False)
  assert 'run: failed, 28 records exported' in export(run, 'mlflow', place)
  assert 'nothing is new' in export(run, 'mlflow', place)
  (found,) = read('mlflow', f'sqlite:///{tmp_path}/mlflow.db')
  returns = sorted(found['metrics']['evaluator/0/evaluator_return'])
  assert returns == [[10 * k, 1000 * (10**9 + k), k] for k in range(20)]
  means = sorted(found['metrics']['inference_learner/0/episode_return'])
  assert [[step, value] for step, _, value in means] == [[40, 2], [90, 7], [140, 12], [190, 17]]
  assert found['metrics']['processes/actor/0/memory_mib'][0][2] == 100
  assert (found['status'], found['tags']['state']) == ('FAILED', 'failed')
  assert found['tags']['exit_code'] == '1'
  assert found['params']['env_options'] == 'rows=6,api_key=***'
  assert found['params']['versions.jax'] and found['params']['program'] == 'sebulba'
  assert {'videos/000000000090.gif', 'graph.svg', 'learning_curve.png'} <= set(found['files'])
  assert b'hunter2' not in everything(place, tmp_path / 'run' / 'trackers')


@pytest.mark.parametrize('how', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_wandb_has_every_measurement_once_in_one_run(tmp_path, place, how):
  run = begin(tmp_path)
  interrupt(run, 'wandb', place, how)
  seconds(run, 12, 20)
  (tmp_path / 'run' / 'learning_curve.png').write_bytes(PNG)
  run.end()
  said = export(run, 'wandb', place)
  assert 'run: finished, 28 records exported' in said
  assert 'nothing is new' in export(run, 'wandb', place)
  first, second = read('wandb', str(place))
  if how != signal.SIGKILL:
    assert first['id'] == second['id']
    assert second['history'][0]['_step'] == 17  # Where the first one has ended.
    rows = first['history'] + second['history']
  else:  # W&B's process has written nothing yet.
    assert 'this one is a new run' in said and first['id'] != second['id']
    rows = second['history']
  assert [row['_step'] for row in rows] == list(range(28))
  evaluations = [row for row in rows if 'evaluator/0/evaluator_return' in row]
  assert [row['evaluator/0/evaluator_return'] for row in evaluations] == list(range(20))
  assert [row['learner_steps'] for row in evaluations] == [10 * k for k in range(20)]
  assert [row['_timestamp'] for row in evaluations] == [1e9 + k for k in range(20)]
  assert {'video/path', 'graph/path', 'learning_curve/path'} <= {name for r in rows for name in r}
  assert second['config']['env_options'] == 'rows=6,api_key=***'
  assert second['summary']['state'] == 'finished' and second['exit_code'] == 0
  assert second['summary']['final/evaluator_return'] == 0.5
  written = everything(place, tmp_path / 'run' / 'trackers')
  assert API_KEY.encode() not in written and b'hunter2' not in written


def test_wandb_without_a_key_is_rejected_in_one_sentence(tmp_path, place, monkeypatch):
  monkeypatch.delenv('WANDB_API_KEY')
  monkeypatch.setenv('WANDB_MODE', 'online')
  monkeypatch.setenv('NETRC', str(tmp_path / 'none'))
  monkeypatch.setenv('HOME', str(tmp_path))
  process = start(begin(tmp_path), 'wandb', place)
  _, error = process.communicate(timeout=600)
  assert process.returncode == 2
  assert error.startswith('error: --to=wandb: ') and error.count('\n') == 1
  assert 'WANDB_API_KEY' in error
