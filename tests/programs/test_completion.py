"""launch.py --completion in a real bash, which asks the script as it does at a press of TAB."""

import os
import subprocess
import sys

import pytest

from tests.programs_under_test import ROOT, run_main

# Bash makes `=` a word of its own.
WORDS = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_launchpod
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
    (['python', 'launch.py', '--agent', '='], ['muzero ', 'ppo ', 'r2d2 ', 'vtrace ']),
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


def test_a_terminal_completes_on_tab(script):
  """Types into an interactive bash, whose own word breaks apply."""
  typed = 'printf "[%s]" launch.py --launcher=sl\t --num_act\t7\n'
  leader, follower = os.openpty()
  process = subprocess.Popen(
    ['bash', '--norc', '--noprofile', '-i'],
    stdin=follower,
    stdout=follower,
    stderr=follower,
    start_new_session=True,
    env={**os.environ, 'PS1': '', 'TERM': 'dumb'},
  )
  os.close(follower)
  # The completion is registered for `printf` here, so that the line can be run.
  lines = f'source {script}\ncomplete -F _launchpod -o nospace printf\n{typed}exit\n'
  os.write(leader, lines.encode())
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
  assert b'[launch.py][--launcher=slurm][--num_actors=7]' in output


def test_zsh_gets_the_same_function_and_loads_what_runs_it(capsys):
  assert run_main('--completion=zsh') == 0
  zsh = capsys.readouterr().out
  assert run_main('--completion=bash') == 0
  bash = capsys.readouterr().out
  assert zsh.endswith(bash) and 'bashcompinit' in zsh.removesuffix(bash)
