"""QT-Opt on recorded transitions, as whole programs."""

import numpy as np
import pytest

from nodes.unrolls import transitions
from nodes.unrolls.packing import UNROLL_ID
from rundir import audit, recorded_unrolls
from tests.programs.test_offline import record
from tests.programs_under_test import ENDLESS, SMALL, log_text
from tests.test_launch import SMALL_Q

QT_OPT = ('--program=qt_opt', *SMALL_Q)


def _unrolls(run_dir, name):
  return set(audit.read(str(run_dir), name)[:, 0].tolist())


def _offline_share(run_dir):
  """Returns the share of offline data among the origins of all relabelled copies."""
  origins = audit.read(str(run_dir), audit.RELABELLED)[:, 1]
  loaded, produced = (_unrolls(run_dir, name) for name in (audit.LOADED, audit.PRODUCED))
  assert set(origins.tolist()) <= loaded | produced and not loaded & produced
  return np.isin(origins, list(loaded)).mean()


def test_a_run_learns_from_its_own_and_recorded_data_at_a_share_and_records(train, tmp_path):
  run_dir = tmp_path / 'run'
  process = train(
    *SMALL,
    *QT_OPT,
    f'--offline_data={record(tmp_path / "recorded")}',
    *(
      '--num_steps=1000',
      '--online_share=0.3',
      '--online_ramp=0',
      '--record_unrolls',
      f'--run_dir={run_dir}',
    ),
  )
  assert process.returncode == 0, process.stderr
  assert 'Traceback' not in log_text(run_dir)
  assert _offline_share(run_dir) == pytest.approx(0.7, abs=0.01)
  assert len(_unrolls(run_dir, audit.LOADED)) == 100
  trained = audit.read(str(run_dir), audit.TRAINED)[:, 0]
  assert set(trained.tolist()) <= _unrolls(run_dir, audit.RELABELLED)

  chunks = [
    recorded_unrolls.read_chunk(path, [UNROLL_ID])[UNROLL_ID]
    for path in recorded_unrolls.chunks(str(run_dir))
  ]
  recorded = np.concatenate(chunks).tolist()
  assert len(recorded) == len(set(recorded))
  produced = _unrolls(run_dir, audit.PRODUCED)
  assert set(recorded) <= produced and len(recorded) >= len(produced) - 32


@pytest.mark.nightly
def test_offline_only_from_a_resumed_run_of_another_program_while_nodes_die(
  start_program, train, tmp_path
):
  played = str(tmp_path / 'played')
  process = train(
    *(*SMALL, '--env=gymnasium:Pendulum-v1', '--record_unrolls', f'--run_dir={played}'),
  )
  assert process.returncode == 0, process.stderr
  first = transitions.count([played])
  process = train(f'--resume={played}', '--num_steps=3000')
  assert process.returncode == 0, process.stderr
  # Of 200 steps of an episode each is a transition; unrolls under way at the end are lost.
  assert 1500 < first < 2200 and first + 500 < transitions.count([played]) < 3300

  program = start_program(*QT_OPT, f'--offline_data={played}', '--online_share=0', ENDLESS)
  for name in ('replay_loader-0', 'replay-0', 'replay_loader-0'):
    program.wait_for_progress()
    victim = program.nodes()[name]
    victim.kill()
    program.wait_until(
      lambda n=name, v=victim: program.nodes().get(n, v).pid != v.pid, f'{name} is back'
    )
  program.wait_for_progress()
  program.launcher.terminate()
  code, _, errors = program.end()
  assert code == 143 and 'Traceback' not in errors
  assert _offline_share(program.run_dir) == 1.0
