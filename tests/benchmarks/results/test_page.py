"""The page: what it shows of recorded runs, and that the repository's is what its records give."""

import dataclasses
import pathlib
import re
import shutil
import types

import matplotlib
import pytest

from benchmarks.results import __main__ as command
from benchmarks.results import page, policies, records, rows
from benchmarks.results.declared import Entry
from benchmarks.results.places import Places
from tests.benchmarks import smoke
from tests.benchmarks.results.recorded import rows as recorded

FOLDER = pathlib.Path(recorded.__file__).parent


@pytest.fixture
def places(tmp_path):
  """The recorded runs, in a directory of their own."""
  shutil.copytree(FOLDER / 'data', tmp_path / 'docs' / 'data')
  return Places(str(tmp_path / 'runs'), str(tmp_path / 'docs'))


def line(text, start):
  """Returns the cells of the only table row that starts with a cell."""
  (found,) = [row for row in text.splitlines() if row.startswith(f'| {start} |')]
  return [cell.strip() for cell in found.strip('|').split('|')]


@pytest.mark.slow
def test_the_repositorys_page_is_what_its_records_give():
  places = command._DEFAULT
  content = page.render(rows.TASKS, rows.GROUPS, places)
  said = 'run `python -m benchmarks.results --render_only`'
  for path, text in content.items():
    assert pathlib.Path(path).read_bytes() == text, said
  there = {str(path) for path in pathlib.Path(places.docs, 'figures').glob('*.svg')}
  assert there == set(content) - {places.page}, said


def test_rows_have_what_was_recorded_and_others_are_shown_as_not_run(places):
  content = page.render(recorded.TASKS, recorded.GROUPS, places)
  text = content[places.page].decode()
  assert line(text, '`anakin`') == [
    '`anakin`',
    '1 (1 to 1)',
    '2 of 3: 1, 2',
    '129,024 (92,160 to 165,888)',
    '20 (16 to 24)',
    'not reached',
    'not reached',
    '231,042 (177,407 to 284,677)',
    '6.4 to 6.5',
    'A',
    '0.6.2',
    '`04de5b9+`',
  ]
  assert line(text, '`r2d2`') == ['`r2d2`', 'not run', '0 of 3', *['-'] * 9]
  assert line(text, 'Somebody, *published*')[1] == '0.9 ± 0.1'
  assert '- Somebody: 10 episodes. Source: a paper.' in text
  assert text.count('**Missed:**') == 1 and '**Missed:** `r2d2`, for want of time.' in text
  assert line(text, 'purejaxrl (peer)')[1:4] == [
    '11, one seed',
    '1 of 1',
    '114,688',
  ]
  assert '.venv/bin/python launch.py --program=r2d2 --env=catch --num_steps=100000 --seed=1' in text
  assert line(text, 'A')[2:] == ['2', '24 GiB', 'none']
  assert '[data/minatar/breakout.json](data/minatar/breakout.json)' in text
  assert text.count('](data/') == 2, 'a task without records has no file'
  for target in re.findall(r'\]\((?!\.\./)([^)]+)\)', text):
    path = str(pathlib.Path(places.docs, target))
    assert path in content or pathlib.Path(path).is_file(), target


def test_a_population_has_a_note_on_the_last_scores_of_its_members(places):
  entry = Entry(recorded.TASKS[0], recorded.TASKS[0].rows[0])
  for seed, record in records.of_row(entry, places).items():
    final = record.final | {'member_scores': [1.0, 0.25 * seed]}
    records.add(places.records(entry), dataclasses.replace(record, final=final))
  text = page.render(recorded.TASKS, recorded.GROUPS, places)[places.page].decode()
  said = (
    'last scores of the members: seed 1: mean 0.625, worst 0.25 of 2; seed 2: mean 0.75, worst 0.5'
  )
  assert f'- {entry.row.label}: {said} of 2.\n' in text


def test_seeds_of_a_row_whose_options_differ_say_so(places):
  entry = Entry(recorded.TASKS[0], recorded.TASKS[0].rows[0])
  for seed, size in ((1, 128), (2, 32)):
    record = records.of_row(entry, places)[seed]
    assert record.options is None
    options = {'queue_size': size, 'batch_size': 16}
    records.add(places.records(entry), dataclasses.replace(record, options=options))
  text = page.render(recorded.TASKS, recorded.GROUPS, places)[places.page].decode()
  said = f'- {entry.row.label}: the seeds differ in queue_size (seed 1: 128, seed 2: 32).\n'
  assert text.count('the seeds differ') == 1 and said in text


def test_a_group_has_the_interquartile_mean_of_its_scaled_returns(places):
  text = page.render(recorded.TASKS, recorded.GROUPS, places)[places.page].decode()
  assert text.index('## MinAtar') < text.index('### Breakout') < text.index('### Freeway')
  assert line(text, 'purejaxrl')[1:] == [
    f'{11 / 28:.4g}, no interval: Breakout with one seed',
    'Breakout',
    '1',
  ]
  assert line(text, 'sebulba')[1:] == ['not run', 'Freeway', '0']


@pytest.mark.parametrize(
  'of_freeway, shown', [([1.0, 3.0], '1.5 (0.5 to 2.5)'), ([1.0], 'unequal numbers of seeds')]
)
def test_a_group_weighs_its_tasks_equally(of_freeway, shown):
  row = types.SimpleNamespace(label='anakin')
  tasks = [
    types.SimpleNamespace(title=title, rows=[row], scale=(0.0, 1.0), name=title)
    for title in ('Breakout', 'Freeway')
  ]
  returns = {'Breakout': [0.0, 2.0], 'Freeway': of_freeway}

  def of(entry):
    made = returns[entry.task.title]
    return {k: types.SimpleNamespace(final={'mean': value}) for k, value in enumerate(made)}

  found = '\n'.join(page._mean_of(tasks, types.SimpleNamespace(of=of)))
  assert shown in found, found


def test_only_tasks_with_records_have_a_figure_and_old_figures_go(places):
  content = page.render(recorded.TASKS, recorded.GROUPS, places)
  figures = pathlib.Path(places.docs, 'figures')
  assert set(content) == {
    places.page,
    *(str(figures / name) for name in ('catch.svg', 'minatar-breakout.svg')),
  }
  svg = content[str(figures / 'catch.svg')].decode()
  assert 'anakin, 2 seeds' in svg and 'environment frames' in svg
  assert '<dc:date>' not in svg
  figures.mkdir()
  (figures / 'old.svg').touch()
  page.write(content, places)
  assert {path.name for path in figures.iterdir()} == {'catch.svg', 'minatar-breakout.svg'}


@pytest.mark.slow
def test_another_process_renders_the_same_bytes_without_any_run(places, monkeypatch):
  # Importing bsuite changes it too.
  monkeypatch.setitem(matplotlib.rcParams, 'lines.linewidth', 9.0)
  content = page.render(recorded.TASKS, recorded.GROUPS, places)
  process = smoke.command(
    'results',
    '--render_only',
    f'--rows={FOLDER / "rows.py"}',
    f'--runs={places.runs}',
    f'--docs={places.docs}',
  )
  assert process.returncode == 0, process.stderr
  for path, text in content.items():
    assert pathlib.Path(path).read_bytes() == text
  assert not pathlib.Path(places.runs).exists()


def test_a_policy_is_kept_only_of_a_run_that_is_the_rows(places):
  entry = Entry(recorded.TASKS[0], recorded.TASKS[0].rows[0])
  assert 'seed 1 has no final parameters' in policies.keep(entry, entry.row, places)
  assert not pathlib.Path(places.policy(entry)).exists()


@pytest.mark.parametrize(
  'flags, said',
  [
    (['pomg'], "'pomg' names no row; did you mean pong?"),
    (['catch', '--seeds=9'], '--seeds=9 is not declared for catch/sebulba'),
    (['--seeds=x'], '--seeds=x must be whole numbers'),
    (['--scripts=purejaxrl=nowhere'], '--scripts=purejaxrl=nowhere must be NAME=PATH'),
    (['--rows=nowhere.py'], '--rows=nowhere.py is not a file'),
  ],
)
def test_flags_that_do_not_fit_end_it_with_a_sentence(flags, said, tmp_path, capsys):
  assert command.main([*flags, f'--docs={tmp_path}', f'--runs={tmp_path}']) == 2
  (text,) = capsys.readouterr().err.splitlines()
  assert text.startswith(f'error: {said}')
  assert list(tmp_path.iterdir()) == []


def test_rows_of_ones_own_do_not_replace_the_page_of_the_repository(tmp_path, capsys):
  flags = [f'--rows={FOLDER / "rows.py"}', f'--runs={tmp_path}', '--render_only']
  assert command.main(flags) == 2
  assert capsys.readouterr().err.endswith('rows.py needs --docs, a directory for its page.\n')
