"""The documentation: the site builds strictly, and what the guides name exists."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from docs import generate
from tests.waiting import DEADLINE

ROOT = pathlib.Path(__file__).parent.parent
GUIDES = ['README.md', 'WORKSPACE.md', 'SECURITY.md']
PAGES = sorted(
  str(path.relative_to(ROOT))
  for folder in ('docs', 'benchmarks')
  for path in (ROOT / folder).rglob('*.md')
)
FOLDERS = (
  'agents|benchmarks|courier|docs|environments|examples|launchers|nodes|programs|rundir|sweeps|tests|'
  'viewing'
)


def build(config, site):
  """Builds a site; returns the finished process."""
  command = [sys.executable, '-m', 'mkdocs', 'build', '--strict', '--config-file', config]
  return subprocess.run(
    [*command, '--site-dir', site],
    cwd=ROOT,
    env={**os.environ, 'NO_MKDOCS_2_WARNING': 'true'},
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The folder of the built site."""
  site = tmp_path_factory.mktemp('site')
  process = build('mkdocs.yml', site)
  assert process.returncode == 0, process.stderr
  return site


@pytest.mark.slow
def test_the_site_lists_every_option_and_shows_the_examples(site):
  options = (site / 'options.html').read_text()
  for flag in (
    'num_steps',
    'max_abs_reward',
    'burn_in',
    'updates_per_call',
    'init_from',
    'config',
    'resume',
    'seeds',
    'launcher',
    'k8s_volume',
  ):
    assert f'<code>--{flag}</code>' in options, flag
  assert '<code>--target_update_period=updates / 50, at most 100</code>' in options
  page = (site / 'extending.html').read_text()
  assert page.count('<div class="highlight">') > 7 and '```' not in page
  extending = re.sub(r'<[^>]+>', '', page)
  for name in ('Corridor', 'Fourier', 'Tempered', 'ActionHistogram'):
    assert f'class {name}' in extending, name
  assert 'def add_histogram' in extending
  assert 'id="limit-and-efficiency"' in (site / 'benchmarks' / 'index.html').read_text()


@pytest.mark.slow
def test_dead_links_missing_anchors_and_unlisted_pages_fail_the_build(tmp_path):
  config = _other_site(tmp_path, '[there](nowhere.md) [here](other.md#nowhere)')
  (tmp_path / 'docs' / 'unlisted.md').write_text('text')
  process = build(config, tmp_path / 'site')
  assert process.returncode
  for complaint in ("'nowhere.md'", "'#nowhere'", 'unlisted.md'):
    assert complaint in process.stderr, complaint


def test_the_generated_parts_of_the_pages_are_up_to_date():
  command = [sys.executable, 'docs/generate.py', '--check']
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
  assert done.returncode == 0, f'run `make docs`: {done.stdout}{done.stderr}'


def test_a_page_shows_the_code_and_the_options_without_the_site():
  extending = (ROOT / 'docs' / 'extending.md').read_text()
  for example in ('corridor', 'doors', 'fourier', 'tempered', 'munchausen', 'histogram', 'mine'):
    assert (ROOT / 'examples' / f'{example}.py').read_text() in extending, example
  assert '| `--num_steps` | ' in (ROOT / 'docs' / 'options.md').read_text()


def test_a_part_without_an_end_or_of_no_file_is_refused():
  for text, complaint in (
    ('<!-- from examples/corridor.py, by make docs -->\n', 'needs its <!-- end -->'),
    ('<!-- from nowhere.py, by make docs -->\n<!-- end -->', 'nowhere.py names no file'),
    ('<!-- from launch.py:nothing, by make docs -->\n<!-- end -->', 'names no function or class'),
  ):
    with pytest.raises(ValueError, match=complaint):
      generate.filled(text)


def _other_site(folder, page):
  """Writes a site of two pages with the settings of ours; returns the path of its mkdocs.yml."""
  text = (ROOT / 'mkdocs.yml').read_text()
  text = text[: text.index('\nnav:')] + '\nnav: [{Home: index.md}, {Other: other.md}]\n'
  (folder / 'docs').mkdir()
  (folder / 'docs' / 'index.md').write_text(page)
  (folder / 'docs' / 'other.md').write_text('text')
  (folder / 'mkdocs.yml').write_text(text)
  return folder / 'mkdocs.yml'


def test_the_picture_of_the_graph_is_what_launch_draws(tmp_path):
  path = tmp_path / 'graph.svg'
  command = [sys.executable, 'launch.py', '--dry_run', f'--graph={path}']
  subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE)
  drawn = (ROOT / 'docs' / 'graph.svg').read_text()
  assert path.read_text() == drawn, '`make docs` draws docs/graph.svg'


@pytest.mark.parametrize('guide', GUIDES)
def test_the_links_of_guides_lead_somewhere(guide):
  text = (ROOT / guide).read_text()
  links = re.findall(r'\]\(([^)\s]+)\)', text)
  assert links
  for link in links:
    path, _, anchor = link.partition('#')
    if not path.startswith('https://'):
      target = ROOT / path if path else ROOT / guide
      assert target.exists(), link
      assert not anchor or anchor in _anchors(target), link


def _anchors(path):
  """Returns the anchors of the headings of a page, as GitHub and mkdocs name them both."""
  headings = re.findall(r'(?m)^#+ (.*)$', path.read_text())
  named = {match[1] for heading in headings if (match := re.search(r'\{ #([\w-]+) \}', heading))}
  plain = (
    re.sub(r'[^\w -]', '', heading).strip().lower().replace(' ', '-') for heading in headings
  )
  return named | set(plain)


@pytest.mark.parametrize('page', [*GUIDES, *PAGES])
def test_files_and_folders_that_a_page_names_exist(page):
  text = (ROOT / page).read_text()
  for path in re.findall(rf'`((?:{FOLDERS})/[\w./]*)`', text):
    assert (ROOT / path).exists(), path


def test_every_promise_of_reliability_names_tests_that_exist():
  text = (ROOT / 'docs' / 'reliability.md').read_text()
  named = re.findall(r'`(tests/[\w/]+\.py)(?:::(\w+))?`', text)
  assert len(named) > 20
  for path, test in named:
    assert f'def {test}' in (ROOT / path).read_text(), (path, test)
