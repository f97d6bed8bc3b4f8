"""The image of every node: its locks, and what Dockerfile and .dockerignore put into it."""

import fnmatch
import re
import subprocess
import sys

import pytest

from environments import user_file
from tests.programs_under_test import ROOT

DOCKERFILE = (ROOT / 'Dockerfile').read_text()
MAKEFILE = (ROOT / 'Makefile').read_text()
LOCKS = [f'requirements{kind}.txt' for kind in ('', '-cuda', '-tpu', '-launchpad', '-replay')]


def test_it_has_every_package_that_launch_needs_and_no_hidden_file():
  script = 'import sys, launch, programs.sebulba; print(*{m.split(".")[0] for m in sys.modules})'
  loaded = subprocess.run(
    [sys.executable, '-c', script], cwd=ROOT, capture_output=True, text=True, check=True
  ).stdout.split()
  ours = {p.name for p in ROOT.iterdir() if (p / '__init__.py').exists()} & set(loaded)
  lines = (ROOT / '.dockerignore').read_text().splitlines()
  ignored = [line.removeprefix('**/') for line in lines if line and not line.startswith('#')]

  def is_ignored(name):
    return any(fnmatch.fnmatch(name, pattern) for pattern in ignored)

  assert ours and not any(map(is_ignored, ours | {'nodes', 'agents', 'launch.py'}))
  assert all(
    map(
      is_ignored,
      [
        '.git',
        '.venv',
        '.env',
        '__pycache__',
        'mlflow.db',
        'secret.yaml',
        'run.sky.yaml',
        *user_file.NOT_IN_IMAGE,
      ],
    )
  )
  assert '\nCOPY . .\n' in DOCKERFILE and '\nARG USER=1000:1000\nUSER $USER\n' in DOCKERFILE


@pytest.mark.parametrize(
  ('accelerator', 'expected'),
  [('cpu', []), ('cuda', ['cuda']), ('tpu', ['tpu']), ('tpu cuda', ['tpu', 'cuda'])],
)
def test_it_installs_the_locks_of_its_accelerators(accelerator, expected, tmp_path):
  (command,) = re.findall(r'^RUN (for .*?done)$', DOCKERFILE, re.MULTILINE | re.DOTALL)
  (tmp_path / 'pip').write_text('#!/bin/sh\nfor last; do :; done; echo "$last"\n')
  (tmp_path / 'pip').chmod(0o755)
  done = subprocess.run(
    ['sh', '-c', command],
    env={'PATH': f'{tmp_path}:/usr/bin:/bin', 'ACCELERATOR': accelerator},
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.split() == [f'requirements-{kind}.txt' for kind in expected]
  assert all((ROOT / name).exists() for name in done.stdout.split())


@pytest.mark.parametrize(
  ('files', 'expected'),
  [([], ''), (['requirements-user.txt'], '-r requirements-user.txt -c requirements-cuda.txt')],
)
def test_it_installs_the_packages_of_the_user(files, expected, tmp_path):
  (command,) = re.findall(r'^RUN (test ! -e requirements-user.*?done\))$', DOCKERFILE, re.M | re.S)
  for file in files:
    (tmp_path / file).touch()
  (tmp_path / 'uv').write_text('#!/bin/sh\necho "$@"\n')
  (tmp_path / 'uv').chmod(0o755)
  done = subprocess.run(
    ['sh', '-c', command],
    env={'PATH': f'{tmp_path}:/usr/bin:/bin', 'ACCELERATOR': 'cpu cuda'},
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout.strip().endswith(expected)
  assert bool(done.stdout) == bool(files)


def test_reverb_runs_with_the_python_of_its_lock():
  version = re.search(r'requirements-replay.in --python-version (\S+)', MAKEFILE)[1]
  stage, image = DOCKERFILE.split(f'FROM python:{version}-slim AS replay\n')[1].split('\nFROM ')
  assert f'RUN python{version} -m venv --without-pip .venv-replay\n' in stage
  for path in (f'bin/python{version}', f'lib/python{version}', f'lib/libpython{version}.so.1.0'):
    assert f'\nCOPY --from=replay /usr/local/{path} /usr/local/' in image
  assert '\nCOPY --from=replay /launchpod/.venv-replay .venv-replay\n' in image


@pytest.mark.parametrize('path', ['runs/mine.py', '.hidden/mine.py', 'examples/.x/mine.py'])
def test_a_file_that_it_does_not_have_is_rejected(path):
  with pytest.raises(
    ValueError, match=r'mine\.py:make is left out of the image by \.dockerignore; '
  ):
    user_file.in_checkout(f'{ROOT}/{path}:make')


@pytest.mark.parametrize('lock', LOCKS)
def test_every_line_of_a_lock_has_its_version_and_hashes(lock):
  text = re.sub(r' *#.*', '', (ROOT / lock).read_text()).replace('\\\n', ' ')
  lines = [line for line in text.splitlines() if line.strip()]
  assert lines
  for line in lines:
    assert re.fullmatch(r'\S+==\S+( ; .*)?( +--hash=sha256:[0-9a-f]{64})+', line), line


def test_the_packages_of_an_accelerator_fit_the_others():
  def pins(lock):
    return dict(re.findall(r'^([^ #=]+)==(\S+)', (ROOT / lock).read_text(), re.MULTILINE))

  ours = pins('requirements.txt')
  for lock in ('requirements-tpu.txt', 'requirements-cuda.txt'):
    theirs = pins(lock)
    assert theirs['jax'] == ours['jax'] and theirs.keys() - ours.keys()
    assert {name: ours.get(name, version) for name, version in theirs.items()} == theirs
