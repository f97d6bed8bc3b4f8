"""A whole program whose actors are threads of its inference-learner."""

import re

from rundir.node_files import log_path
from tests.programs_under_test import DONE, SMALL

# Catch whose first process fails in an actor.
CATCH = """
import os, pathlib
from environments.catch import Catch

class Failing(Catch):
  def step(self, action):
    if os.environ.get('LAUNCHPOD_RESTART_COUNT', '0') == '0' and self.num_envs == 8:
      raise RuntimeError('the emulator has crashed')
    return super().step(action)

def make(task, num_envs, seed):
  return Failing(num_envs, seed)
"""


def test_a_program_trains_to_its_end_after_a_restart_for_the_error_of_an_actor(train, tmp_path):
  run_dir, file = tmp_path / 'run', tmp_path / 'failing.py'
  file.write_text(CATCH)
  flags = (
    *SMALL,
    '--actors_as_threads',
    f'--env={file}:make',
    f'--run_dir={run_dir}',
    '--eval_envs=5',
  )
  process = train(*flags)
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert int(done[2]) >= 2000 and int(done[4]) >= 15
  assert 'node inference_learner/0 ' in process.stderr and 'restarting' in process.stderr
  logs = {path.stem for path in (run_dir / 'logs').glob('*.log')}
  assert logs == {'evaluator-0', 'inference_learner-0', 'monitor-0', 'replay-0'}
  with open(log_path(str(run_dir), 'inference_learner/0')) as log:
    first, *others = re.split('^RuntimeError: the emulator has crashed\n', log.read(), flags=re.M)
  assert len(others) == 1 and 'Traceback' not in others[0]
  assert 'failing.py' in first and 'actor/0 has failed.' in first
