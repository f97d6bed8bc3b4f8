"""The benchmark of a GPU: its sections share its time, and what each has found is kept."""

import json
import sys

import psutil
import pytest

from benchmarks.gpu import budget, sections
from tests.benchmarks import smoke

_WRITES = 'import json, sys; json.dump({results}, open(sys.argv[1], "w")); '
_WAITS = 'import time; time.sleep(1000)'
# A child in a session of its own, as the nodes of a program are.
_LAUNCHES = (
  'import json, subprocess, sys; '
  'child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], '
  'start_new_session=True); json.dump({"child": child.pid}, open(sys.argv[1], "w")); '
)


def _run(tmp_path, scripts, seconds, weights=None):
  told = {}

  def command(name, stated, path):
    told[name] = stated
    return [sys.executable, '-c', scripts[name], path]

  path = tmp_path / 'gpu.json'
  record = budget.run(
    weights or dict.fromkeys(scripts, 1),
    seconds,
    command,
    str(tmp_path),
    {'device': 'none'},
    str(path),
  )
  assert json.loads(path.read_text()) == record
  return record, told


def test_each_section_is_recorded_and_a_failure_leaves_the_others(tmp_path, capsys):
  scripts = {
    'good': _WRITES.format(results={'rate': 3}),
    'bad': _WRITES.format(results={'rate': 4}) + 'raise RuntimeError("no such game")',
    'absent': _WRITES.format(results={'skipped': 'not installed'}),
    'late': _WRITES.format(results={'cut': True, 'rate': 5}).replace('True', '1'),
  }
  record, _ = _run(tmp_path, scripts, 200)
  found = record['sections']
  assert [found[name]['ended'] for name in scripts] == [
    'complete', 'failed', 'skipped', 'by its share'
  ]  # fmt: skip
  assert [found[name]['results'] for name in scripts] == [{'rate': 3}, {'rate': 4}, {}, {'rate': 5}]
  assert 'RuntimeError: no such game' in found['bad']['error']
  assert found['absent']['reason'] == 'not installed'
  assert (record['device'], record['budget_seconds']) == ('none', 200)
  assert 'bad: failed after' in capsys.readouterr().out


def test_a_section_ends_with_its_children_at_its_share_and_keeps_what_it_has_written(tmp_path):
  scripts = {'endless': _LAUNCHES + _WAITS, 'next': _WRITES.format(results={'rate': 3})}
  record, _ = _run(tmp_path, scripts, 8)
  endless = record['sections']['endless']
  assert endless['ended'] == 'by its share'
  child = endless['results']['child']
  assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
  assert record['sections']['next']['results'] == {'rate': 3}
  assert record['seconds'] < 8


def test_what_a_section_leaves_goes_to_the_later_ones(tmp_path):
  scripts = dict.fromkeys(('first', 'second', 'third'), 'pass')
  record, told = _run(tmp_path, scripts, 400, {'first': 1, 'second': 1, 'third': 2})
  shares = [record['sections'][name]['share_seconds'] for name in scripts]
  assert shares == pytest.approx([100, 400 / 3, 400], rel=0.1)
  for name, share in zip(scripts, shares, strict=True):
    assert told[name] == pytest.approx(share - budget.GRACE_SECONDS)


def test_the_shares_of_all_sections_are_the_nine_minutes():
  assert sum(sections.WEIGHTS.values()) == 540


@pytest.mark.parametrize('gpu', [True, False])
def test_a_section_writes_each_result_at_once(tmp_path, gpu):
  path = tmp_path / 'search.json'
  section = sections.Section(5.0, str(path), gpu)
  section.report(a=1)
  section.report(b=section.size('large', 'tiny'))
  assert json.loads(path.read_text()) == {'a': 1, 'b': 'large' if gpu else 'tiny'}


def test_an_unknown_section_is_rejected():
  process = smoke.command('gpu', '--sections=pong')
  assert process.returncode == 1
  assert process.stderr.startswith('error: --sections=pong must be some of restart,anakin,')


@pytest.mark.nightly
def test_the_dry_run_completes_every_section(tmp_path):
  process = smoke.command('gpu', '--dry_run', f'--results={tmp_path}', '--seconds=400')
  assert process.returncode == 0, process.stderr
  record = json.loads((tmp_path / 'gpu-dry-run.json').read_text())
  assert record['dry_run'] and list(record['sections']) == list(sections.WEIGHTS)
  for name, section in record['sections'].items():
    assert section['ended'] in ('complete', 'skipped'), (name, section)
