"""launch.py --completion in a real bash, which asks the script as it does at a press of TAB."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.programs_under_test import ROOT

# Bash makes `=` a word of its own.
WORDS = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }  # Only a completion that bash itself has begun has options.
case "$1" in launch.py) _launchpod ;; *) _launchpod_python "$1" ;; esac
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope='module')
def script(tmp_path_factory):
  """The script for bash, as launch.py prints it."""
  path = tmp_path_factory.mktemp('completion') / 'launchpod.bash'
  command = [sys.executable, 'launch.py', '--completion=bash']
  with open(path, 'w') as f:
    subprocess.run(command, cwd=ROOT, check=True, stdout=f, timeout=60)
  return path


def complete(script, *words):
  """Returns what bash would complete the last word to."""
  command = ['bash', '--norc', '-c', WORDS, 'bash', script, *words]
  done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
  assert done.stderr == ''
  return done.stdout.splitlines()


@pytest.mark.parametrize(
  'words, replies',
  [
    (['launch.py', '--num_act'], ['--num_actors=']),
    (['python', 'launch.py', '--num_act'], ['--num_actors=']),
    (['python', '../x/launch.py', '--seed=1', '--noaud'], ['--noaudit ']),
    (['python', 'launch.py', '--launcher', '=', 's'], ['slurm ']),
    (['python', 'launch.py', '--launcher', '=', 'local', '--unroll_l'], ['--unroll_length=']),
    # Where `=` is not a word of its own.
    (['python', 'launch.py', '--launcher=s'], ['--launcher=slurm ']),
    (['python', 'launch.py', '--program', 'se'], ['sebulba ']),
    (['python', 'launch.py', '--agent', '=', 'q'], ['qt_opt ']),
    (['python', 'launch.py', '--env', '=', 'mina'], ['minatar']),
    (['python', 'launch.py', '--preset', '=', 'p'], ['published ']),
    # Names of files are left to the shell.
    (['python', 'launch.py', '--config', '=', 'mk'], ['']),
    (['python', 'watch.py', '--we'], ['']),
    (['python', 'launch.py', '--lp_dummy'], ['']),
  ],
)
def test_flags_and_their_values_are_completed(script, words, replies):
  assert complete(script, *words) == replies


def test_a_flag_without_a_value_is_followed_by_flags(script):
  replies = complete(script, 'python', 'launch.py', '--dry_run', '')
  assert {'--program=', '--seeds=', '--dry_run ', '--help '} <= set(replies)


def typed(lines, shell=('bash', '--norc', '--noprofile', '-i')):
  """Types lines into an interactive shell, whose own word breaks apply; returns its output."""
  leader, follower = os.openpty()
  process = subprocess.Popen(
    shell,
    stdin=follower,
    stdout=follower,
    stderr=follower,
    start_new_session=True,
    env={**os.environ, 'PS1': '', 'TERM': 'dumb'},
  )
  os.close(follower)
  os.write(leader, f'{lines}exit\n'.encode())
  output = b''
  try:
    while block := os.read(leader, 1 << 16):
      output += block
  except OSError:  # The terminal is closed.
    pass
  finally:
    os.close(leader)
    process.kill()
    process.wait()
  return output.decode()


# So that the lines can be run.
_PYTHON = 'python() { printf "[%s]" "$@"; }\n'


def test_a_terminal_completes_on_tab(script):
  output = typed(f'source {script}\n{_PYTHON}python launch.py --launcher=sl\t --num_act\t7\n')
  assert '[launch.py][--launcher=slurm][--num_actors=7]' in output


def test_other_lines_of_python_keep_their_completion(script, tmp_path):
  """The one of before, and the one that bash-completion loads at the first TAB."""
  mine = '_mine() { COMPREPLY=($(compgen -W "--mined" -- "$2")); }\n'
  lines = 'python -m x --mi\t --mi\t end\npython launch.py --num_act\t7\n'
  wanted = ['[-m][x][--mined][--mined][end]', '[launch.py][--num_actors=7]']
  before = typed(
    f'{mine}complete -F _mine python\nsource {script}\nsource {script}\n{_PYTHON}{lines}'
  )
  loader = '_loader() { complete -F _mine "$1"; return 124; }\ncomplete -D -F _loader\n'
  loaded = typed(f'{mine}{loader}source {script}\n{_PYTHON}{lines}')
  for output in (before, loaded):
    assert all(words in output for words in wanted), output


def test_names_of_files_are_completed_with_a_blank_after_python(script, tmp_path):
  (tmp_path / 'mine_alone.py').touch()
  output = typed(f'cd {tmp_path}\nsource {script}\n{_PYTHON}python mine_al\tend\n')
  assert '[mine_alone.py][end]' in output


@pytest.mark.skipif(shutil.which('zsh') is None, reason='zsh is not installed')
def test_zsh_completes_on_tab(tmp_path):
  path = tmp_path / 'launchpod.zsh'
  with open(path, 'w') as f:
    command = [sys.executable, 'launch.py', '--completion=zsh']
    subprocess.run(command, cwd=ROOT, check=True, stdout=f, timeout=60)
  (tmp_path / 'mine_alone.py').touch()
  lines = 'python launch.py --num_act\t7\npython mine_al\tend\n'
  output = typed(f'cd {tmp_path}\nsource {path}\n{_PYTHON}{lines}', ('zsh', '-f', '-i'))
  assert '[launch.py][--num_actors=7]' in output and '[mine_alone.py][end]' in output
