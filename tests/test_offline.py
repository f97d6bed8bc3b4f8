"""Learning from recorded transitions, with and without actors, as whole programs."""

import json

import numpy as np
import pytest

from nodes.unrolls import transitions
from nodes.unrolls.packing import UNROLL_ID
from rundir import audit, recorded_unrolls
from tests import expert
from tests.programs.test_offline import record
from tests.programs_under_test import ENDLESS, SMALL, log_text
from tests.test_launch import SMALL_Q

CARTPOLE = ('--program=offline', '--env=cartpole', '--eval_episodes=20')
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
    program.wait_for_restart(name, victim)
  program.wait_for_progress()
  program.launcher.terminate()
  code, _, errors = program.end()
  assert code == 143 and 'Traceback' not in errors
  assert _offline_share(program.run_dir) == 1.0


def _summary(run_dir):
  return json.loads((run_dir / 'summary.json').read_text())


def test_a_clone_plays_as_the_expert_and_ppo_begins_as_the_clone(train, tmp_path):
  data, returns = expert.record(tmp_path / 'expert', episodes=3)
  assert returns == [500.0] * 3
  clone, ppo = tmp_path / 'clone', tmp_path / 'ppo'
  process = train(*CARTPOLE, f'--offline_data={data}', '--num_steps=64000', f'--run_dir={clone}')
  assert process.returncode == 0, process.stderr
  assert 'Traceback' not in log_text(clone)
  summary = _summary(clone)
  assert (summary['actor_steps'], summary['learner_steps']) == (64_000, 1_000)
  assert summary['evaluator_return'] > 300  # Of 500; a random policy has 22.

  process = train(
    *SMALL,
    *('--agent=ppo', '--env=cartpole', '--learning_rate=1e-30', '--eval_episodes=20'),
    *(f'--init_from={clone}', f'--run_dir={ppo}'),
  )
  assert process.returncode == 0, process.stderr
  assert _summary(ppo)['evaluator_return'] > 300


@pytest.mark.nightly
@pytest.mark.parametrize('agent, episodes, least', [('bc', 3, 450), ('avril', 15, 450)])
def test_imitation_of_an_expert(train, tmp_path, agent, episodes, least):
  data, _ = expert.record(tmp_path / 'expert', episodes)
  run_dir = tmp_path / 'run'
  flags = f'--agent={agent}', f'--offline_data={data}', f'--run_dir={run_dir}'
  process = train(*CARTPOLE, *flags)
  assert process.returncode == 0, process.stderr
  assert _summary(run_dir)['evaluator_return'] > least


@pytest.mark.nightly
def test_continuous_recordings_are_cloned_and_a_resumed_run_counts_on(train, tmp_path):
  data, returns = expert.record(tmp_path / 'expert', episodes=20, task=expert.PENDULUM)
  assert np.mean(returns) > -300
  run_dir = tmp_path / 'run'
  flags = f'--env={expert.PENDULUM}', f'--offline_data={data}', '--eval_episodes=20'
  process = train('--program=offline', *flags, '--num_steps=256000', f'--run_dir={run_dir}')
  assert process.returncode == 0, process.stderr
  assert _summary(run_dir)['learner_steps'] == 4_000
  process = train(f'--resume={run_dir}', '--num_steps=288000')
  assert process.returncode == 0, process.stderr
  assert 'Traceback' not in log_text(run_dir)
  summary = _summary(run_dir)
  assert (summary['actor_steps'], summary['learner_steps']) == (288_000, 4_500)
  assert summary['evaluator_return'] > -500  # A random policy has -1,200.


@pytest.mark.nightly
def test_qt_opt_learns_without_actors(train, tmp_path):
  data, _ = expert.record(tmp_path / 'expert', episodes=5, task=expert.PENDULUM)
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=offline', '--agent=qt_opt', f'--env={expert.PENDULUM}', '--num_steps=12800'),
    *(f'--offline_data={data}', '--num_samples=8', '--num_elites=2', f'--run_dir={run_dir}'),
  )
  assert process.returncode == 0, process.stderr
  assert 'Traceback' not in log_text(run_dir)
  assert _summary(run_dir)['learner_steps'] == 200


@pytest.mark.nightly
def test_a_run_without_actors_goes_on_while_its_nodes_die(start_program, tmp_path):
  data, _ = expert.record(tmp_path / 'expert', episodes=2)
  flags = f'--offline_data={data}', '--checkpoint_period=0.5', ENDLESS
  program = start_program(*CARTPOLE, *flags, small=())
  for name in ('replay_loader-0', 'replay-0', 'learner-0', 'evaluator-0', 'monitor-0'):
    program.wait_for_progress()
    program.wait_until(program.checkpoint_counts, 'a checkpoint')
    victim = program.nodes()[name]
    victim.kill()
    program.wait_for_restart(name, victim)
  program.wait_for_progress()
  program.launcher.terminate()
  code, _, errors = program.end()
  assert code == 143 and 'Traceback' not in errors
