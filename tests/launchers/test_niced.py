"""A further engine, written as docs/design.md describes it."""

import json
import os
import subprocess
import sys

import pytest

from rundir import run_end
from tests.programs_under_test import ROOT

_FLAGS = """
import runpy, sys
from launchers import engines
from tests.launchers.niced import Niced
engines.TABLE['niced'] = Niced
runpy.run_path('launch.py', run_name='__main__')
"""
_MAIN = """
import sys
import launchers
from tests.launchers.niced import Niced
from {program} import make_program
sys.exit(launchers.launch(make_program(), Niced(niceness=7), run_dir={run_dir!r}))
"""
_PROGRAM = """
from tests.launchers import nodes

def make_program():
  return nodes.program(
    (nodes.Environment, False, {path!r}), (nodes.Stopper, False, {path!r})
  )
"""


@pytest.mark.slow
@pytest.mark.parametrize('by_flags', [True, False])
def test_a_further_engine_runs_programs_by_its_flags_and_from_a_main(tmp_path, by_flags):
  run_dir, written = tmp_path / 'run', tmp_path / 'written'
  (tmp_path / 'mine.py').write_text(_PROGRAM.format(path=str(written)))
  if by_flags:
    program = f'--program={tmp_path}/mine.py:make_program'
    arguments = [_FLAGS, '--launcher=niced', '--niceness=7', program, f'--run_dir={run_dir}']
  else:
    arguments = [_MAIN.format(program='mine', run_dir=str(run_dir))]
  done = subprocess.run(
    [sys.executable, '-c', *arguments],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': f'{ROOT}:{tmp_path}'},
    capture_output=True,
    text=True,
    timeout=100,
  )
  assert done.returncode == 0, done.stdout + done.stderr
  assert json.loads(written.read_text())['nice'] == 7
  assert done.stdout.splitlines()[-1] == run_end.result(str(run_dir))
