"""The live page in a browser: what it shows, and that it shows it without an error."""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from tests.viewing import long_run
from tests.viewing.web import serving
from tests.waiting import DEADLINE

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
pytestmark = pytest.mark.skipif(
  CHROMIUM is None, reason="no chromium is installed; Debian's package `chromium` has it"
)
_FLAGS = (
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--hide-scrollbars',
  '--window-size=1360,1700',
  '--virtual-time-budget=6000',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',  # The page needs no other host.
)


def browse(address, profile, *flags):
  """Opens an address; returns what the browser prints. Console messages go to its log."""
  process = subprocess.run(
    [CHROMIUM, *_FLAGS, f'--user-data-dir={profile}', '--enable-logging=stderr', *flags, address],
    capture_output=True,
    text=True,
    timeout=DEADLINE,
  )
  messages = [line for line in process.stderr.splitlines() if 'CONSOLE' in line]
  assert not messages, messages
  return process.stdout


def words_of(dom):
  return re.sub(r'\s+', ' ', re.sub(r'<[^>]+>', ' ', dom))


@pytest.mark.slow
@pytest.mark.parametrize(
  'run, words',
  [
    (0, 'the environments are the bottleneck; more --num_actors would help'),
    (1, 'replay holds the actors back and the learner never waits: the learner is the bottleneck'),
    (2, 'inference is always busy: inference is the bottleneck'),
  ],
)
def test_a_newcomer_reads_the_bottleneck_of_a_slow_run_on_the_page(tmp_path, run, words):
  with serving.serve(serving.RUNS[run]) as address:
    dom = browse(address, tmp_path / 'profile', '--dump-dom')
  text = words_of(dom)
  assert words in text.lower()
  assert 'unrolls' in text and 'batches' in text and '/s' in text  # The flows of the graph.
  assert dom.count('class="cell ') >= 5 and '<canvas' in dom


def test_a_node_shows_its_curves_its_log_and_the_command_for_its_stacks(tmp_path):
  with serving.serve(*serving.RUNS) as address:
    text = words_of(browse(f'{address}#0:actor/1', tmp_path / 'profile', '--dump-dom'))
  assert 'slow_environment --stacks=actor/1' in text
  assert 'stepping_share' in text and 'retrying the request of actor/1' in text
  assert 'Options that differ' in text and '--num_actors' in text


def test_markup_in_a_log_is_text(tmp_path):
  run_dir = tmp_path / 'run'
  shutil.copytree(serving.RUNS[0], run_dir)
  with open(run_dir / 'logs' / 'actor-0.log', 'a') as f:
    f.write('<img src=x onerror="document.title=1"><script>document.title=1</script>\n')
  with serving.serve(run_dir) as address:
    dom = browse(f'{address}#0:actor/0', tmp_path / 'profile', '--dump-dom')
  assert '&lt;img src=x' in dom and '<img' not in dom and '<title>1' not in dom


@pytest.mark.slow
@pytest.mark.parametrize('scheme', ['light', 'dark'])
def test_the_page_of_a_thousand_actors_is_drawn_in_light_and_dark(tmp_path, scheme):
  run_dir = long_run.make(tmp_path / 'run', hours=0.2, num_actors=1000)
  shot = os.environ.get('LAUNCHPOD_SHOT', str(tmp_path / 'page')) + f'-{scheme}.png'
  with serving.serve(run_dir) as address:
    dark = ['--blink-settings=preferredColorScheme=0'] if scheme == 'dark' else []
    browse(address, tmp_path / 'profile', f'--screenshot={shot}', *dark)
  pixels = np.asarray(Image.open(shot).convert('RGB')).astype(int)
  assert pixels.shape == (1700, 1360, 3)
  brightness = pixels.mean()
  assert brightness > 200 if scheme == 'light' else brightness < 90
  # A thousand actors that replay holds back are as many cells in the colour of that state.
  held = [215, 122, 16] if scheme == 'light' else [240, 160, 60]
  area = (np.abs(pixels - held).max(axis=2) < 6).sum()
  assert area > 1000 * 50, area
