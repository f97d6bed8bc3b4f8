"""install_packages.py, which `make` and `make add` call, with uv and small wheels of the test's own."""

import os
import pathlib
import subprocess
import sys
import venv

import pytest

from tests.small_wheels import write_wheel
from tests.waiting import DEADLINE

ROOT = pathlib.Path(__file__).parent.parent
SCRIPT = ROOT / 'install_packages.py'


class Checkout:
  """A folder with a lock and a virtual environment, as `make` leaves it."""

  def __init__(self, folder):
    self.folder, self.wheels = folder, folder / 'wheels'
    self.wheels.mkdir()
    venv.create(folder / 'env', with_pip=False)
    (folder / 'env' / 'bin' / 'uv').symlink_to(pathlib.Path(sys.executable).with_name('uv'))
    self.locks = {v: write_wheel(self.wheels, 'held', v) for v in ('1.0', '2.0', '3.0')}
    write_wheel(self.wheels, 'part', '1.0')
    # Like navix: it takes any version of what is locked, and by itself the newest.
    write_wheel(self.wheels, 'maze', '1.0', 'held', 'part')
    write_wheel(self.wheels, 'tracker', '1.0', 'held<3')
    write_wheel(self.wheels, 'tracker', '2.0', 'held>=2')
    self.lock('1.0')

  def lock(self, version):
    (self.folder / 'requirements.txt').write_text(self.locks[version])

  def make(self, change, packages=''):
    """Runs the script; returns its exit code, and stdout and stderr together."""
    command = [self.folder / 'env' / 'bin' / 'python', SCRIPT, change, 'requirements.txt']
    environ = {k: v for k, v in os.environ.items() if not k.startswith('UV_')}
    environ |= {'UV_OFFLINE': '1', 'UV_NO_INDEX': '1', 'UV_FIND_LINKS': str(self.wheels)}
    environ |= {'UV_NO_CONFIG': '1', 'UV_CACHE_DIR': str(self.folder / 'cache')}
    done = subprocess.run(
      command,
      cwd=self.folder,
      env=environ | {'PACKAGES': packages},
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      timeout=DEADLINE,
    )
    return done.returncode, done.stdout

  def installed(self):
    """Returns the versions in the virtual environment, by name."""
    (site,) = self.folder.glob('env/lib/*/site-packages')
    return dict(path.stem.split('-') for path in site.glob('*.dist-info'))

  def files(self):
    return {path.name: path.read_text() for path in self.folder.glob('requirements-user.*')}


@pytest.fixture
def checkout(tmp_path):
  checkout = Checkout(tmp_path)
  assert checkout.make('keep') == (0, '')
  assert checkout.installed() == {'held': '1.0'} and not checkout.files()
  return checkout


def test_what_is_added_moves_no_locked_package_and_stays(checkout):
  code, said = checkout.make('add', 'maze tracker')
  assert (code, said) == (0, 'of requirements-user.in: maze==1.0, tracker==1.0\n')
  added = {'held': '1.0', 'maze': '1.0', 'part': '1.0', 'tracker': '1.0'}
  assert checkout.installed() == added
  assert checkout.files()['requirements-user.in'] == 'maze\ntracker\n'
  assert '--hash=sha256:' in checkout.files()['requirements-user.txt']
  assert checkout.make('keep')[0] == 0
  assert checkout.installed() == added


def test_another_lock_resolves_the_added_packages_again(checkout):
  checkout.make('add', 'maze tracker')
  checkout.lock('3.0')
  assert checkout.make('keep')[0] == 0
  assert checkout.installed() == {'held': '3.0', 'maze': '1.0', 'part': '1.0', 'tracker': '2.0'}


@pytest.mark.parametrize('packages', ['tracker>=2', 'held>=2', 'maze tracker==2.0'])
def test_what_does_not_fit_is_refused_and_changes_nothing(checkout, packages):
  checkout.make('add', 'maze')
  before = checkout.installed(), checkout.files()
  code, said = checkout.make('add', packages)
  assert code == 2
  assert said.splitlines()[-1] == (
    f'error: {packages.split()[-1]} does not fit held==1.0, which requirements.txt holds; '
    'the environment is as it was.'
  )
  assert (checkout.installed(), checkout.files()) == before


def test_a_lock_that_the_added_packages_do_not_fit_is_refused_until_they_go(checkout):
  checkout.make('add', 'maze tracker<2')
  before = checkout.installed(), checkout.files()
  checkout.lock('3.0')
  code, said = checkout.make('keep')
  assert code == 2 and 'error: tracker<2 does not fit held==3.0' in said and 'make remove' in said
  assert (checkout.installed(), checkout.files()) == before
  assert checkout.make('remove', 'Tracker')[0] == 0
  assert checkout.installed() == {'held': '3.0', 'maze': '1.0', 'part': '1.0'}


def test_removing_the_last_package_leaves_what_is_locked(checkout):
  checkout.make('add', 'maze')
  assert checkout.make('remove', 'maze') == (0, '')
  assert checkout.installed() == {'held': '1.0'} and not checkout.files()


def test_a_directory_is_added_without_a_hash(checkout):
  own = checkout.folder / 'own'
  own.mkdir()
  (own / 'own.py').touch()
  (own / 'backend.py').write_text(
    'import sys\n'
    f'sys.path.insert(0, {str(ROOT)!r})\n'
    'import pathlib\n'
    'from tests.small_wheels import write_wheel\n'
    'def build_wheel(folder, *_):\n'
    '  write_wheel(pathlib.Path(folder), "own", "0.1", "held")\n'
    '  return "own-0.1-py3-none-any.whl"\n'
  )
  (own / 'pyproject.toml').write_text(
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    '[project]\nname = "own"\nversion = "0.1"\ndependencies = ["held"]\n'
  )
  assert checkout.make('add', './own maze')[0] == 0
  assert checkout.installed() == {'held': '1.0', 'maze': '1.0', 'part': '1.0', 'own': '0.1'}
  assert checkout.make('remove', './own')[0] == 0
  assert checkout.installed() == {'held': '1.0', 'maze': '1.0', 'part': '1.0'}


@pytest.mark.parametrize(
  ('change', 'packages', 'complaint'),
  [
    ('add', '', "name the packages, as in make add PACKAGES='navix wandb'"),
    ('remove', '', 'name the packages'),
    ('remove', 'navix', 'requirements-user.in has no navix; nothing has been added'),
    ('add', 'maze>=', 'uv cannot resolve'),
    ('add', 'nowhere', 'uv cannot resolve'),
  ],
)
def test_a_wrong_command_changes_nothing(checkout, change, packages, complaint):
  code, said = checkout.make(change, packages)
  assert code == 2 and f'error: {complaint}' in said
  assert checkout.installed() == {'held': '1.0'} and not checkout.files()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_clone_trains_with_packages_of_its_own(tmp_path):
  clone = tmp_path / 'clone'
  subprocess.run(['git', 'clone', '--quiet', ROOT, clone], check=True, timeout=DEADLINE)

  def run(*command):
    return subprocess.run(command, cwd=clone, capture_output=True, text=True, timeout=900)

  added = run('make', 'add', 'PACKAGES=navix wandb')
  assert added.returncode == 0, added.stderr
  refused = run('make', 'add', 'PACKAGES=mujoco>=4')
  assert refused.returncode and 'mujoco>=4 does not fit mujoco==3' in refused.stderr
  python = '.venv/bin/python'
  assert run(python, '-c', 'import navix, wandb').returncode == 0
  trained = run(python, 'launch.py', '--num_steps=20000', f'--run_dir={tmp_path}/run')
  assert trained.returncode == 0 and 'done: ' in trained.stdout, trained.stderr
  assert run('make', '-q', '.venv/installed-cpu-3.12').returncode == 0
