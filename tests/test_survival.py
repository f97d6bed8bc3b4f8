"""Whole programs that lose their nodes, are stopped, and go on: real processes, with a deadline."""

import os
import re
import signal
import sys

import numpy as np
import pytest

from benchmarks.running import processes
from rundir import audit, checkpoints, curves, learners, lineage, node_files, saved_params
from tests.programs_under_test import DONE, ENDLESS, SMALL_REPLAY, SMALL_SEARCH, launch

QUEUE = ('--checkpoint_period=0.5', '--eval_period=500', '--audit')
R2D2 = (
  '--program=r2d2',
  *SMALL_REPLAY,
  '--checkpoint_period=0.5',
  '--replay_checkpoint_period=0.5',
  '--audit',
)
MUZERO = (
  '--program=muzero',
  *SMALL_SEARCH,
  '--reanalyse_nodes=1',
  '--reanalyse_share=0.5',
  '--samples_per_insert=8',
  '--checkpoint_period=0.5',
  '--audit',
)
QT_OPT = (
  *('--program=qt_opt', '--env=gymnasium:Pendulum-v1', '--min_replay_size=16', '--batch_size=4'),
  *(
    '--samples_per_insert=1',
    '--checkpoint_period=0.5',
    '--replay_checkpoint_period=0.5',
    '--audit',
  ),
)
SAC = (
  *('--program=sac', '--min_replay_size=16', '--batch_size=4', '--head_sizes=8', '--audit'),
  *('--checkpoint_period=0.5', '--replay_checkpoint_period=0.5', '--eval_period=500'),
)
GALA = ('--program=gala', '--num_peers=2', '--num_envs=8', '--mlp_sizes=16', '--updates_per_call=5')
EVOLUTION = (
  *('--program=evolution', '--num_pairs=16', '--virtual_workers=4', '--mlp_sizes=8'),
  '--eval_episodes=10',
)
POPULATION = (
  *('--program=population', '--num_members=2', '--num_envs=8', '--mlp_sizes=16'),
  *('--updates_per_call=5', '--ready_steps=2000'),
)
POPULATION_SEBULBA = (
  *('--program=population_sebulba', '--num_members=2', '--envs_per_actor=8', '--env_groups=1'),
  *('--batch_size=8', '--mlp_sizes=16', '--ready_steps=2000'),
)
NODES = ['actor-0', 'replay-0', 'monitor-0', 'evaluator-0']


def _end(program):
  """Waits for the end; returns exit code and stderr. No process is left."""
  code, _, errors = program.end()
  assert processes(program.run_dir) == []
  return code, errors


@pytest.mark.parametrize(
  'flag, learners',
  [
    ('--program=sebulba', ['inference_learner-0']),
    pytest.param('--inference_nodes=1', ['learner-0', 'inference-0'], marks=pytest.mark.nightly),
    pytest.param('--program=impala', ['learner-0'], marks=pytest.mark.nightly),
  ],
)
def test_every_node_may_be_killed_and_the_run_be_stopped_and_resumed(
  start_program, train, flag, learners
):
  # Requests are large enough for shared memory.
  program = start_program(flag, *QUEUE, ENDLESS, '--envs_per_actor=64')
  nodes = [*learners, *NODES]
  program.wait_for_progress()
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  for name in nodes:
    victim = program.nodes()[name]
    victim.kill()
    program.wait_for_restart(name, victim)
    program.wait_for_progress()
  evaluations = _evaluations(program)
  program.wait_until(lambda: _evaluations(program) > evaluations, 'the evaluator evaluates')
  mapped = [mapping.path for mapping in program.nodes()['actor-0'].memory_maps()]
  assert any('memfd:launchpod-rows' in path for path in mapped)

  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143
  for name in nodes:
    assert f'node {name.replace("-", "/")} was killed by SIGKILL; restarting' in errors
  python = os.path.relpath(sys.executable)
  assert errors.rstrip().endswith(f'to resume: {python} launch.py --resume={program.run_dir}')

  saved = program.checkpoint_counts()
  refused = launch(f'--resume={program.run_dir}', '--discount=0.5')
  assert (refused.returncode, refused.stdout) == (2, '')
  assert '--discount=0.5 cannot change' in refused.stderr

  resumed = train(f'--resume={program.run_dir}', f'--num_steps={saved["actor_steps"] + 2000}')
  assert resumed.returncode == 0, resumed.stderr
  done = DONE.fullmatch(resumed.stdout.splitlines()[-1])
  assert int(done[2]) >= saved['actor_steps'] + 2000
  assert int(done[4]) > saved['learner_steps']

  produced, trained = _unrolls(program, audit.PRODUCED), _unrolls(program, audit.TRAINED)
  assert len(set(produced)) == len(produced)
  assert len(set(trained)) == len(trained), 'an unroll of the queue was learned from twice'
  assert set(trained) <= set(produced)


def _relabelled(program):
  return len(curves.read(program.run_dir, 'relabeller/0', 'unrolls_relabelled'))


def _evaluations(program):
  return len(curves.read(program.run_dir, 'evaluator/0', 'evaluator_return'))


def _unrolls(program, name):
  return audit.read(program.run_dir, name)[:, 0].tolist()


def test_a_resumed_r2d2_has_its_replay(start_program):
  program = start_program(*R2D2, ENDLESS)
  program.wait_for_progress()
  program.launcher.send_signal(signal.SIGINT)
  code, errors = _end(program)
  assert code == 130 and 'Traceback' not in errors
  saved = program.checkpoint_counts()['learner_steps']
  before = set(_unrolls(program, audit.PRODUCED))
  trained = len(_unrolls(program, audit.TRAINED))
  resumed = start_program(f'--resume={program.run_dir}')
  resumed.wait_until(lambda: resumed.learner_steps() > saved, 'the resumed run learns')
  resumed.launcher.send_signal(signal.SIGHUP)  # As a lost ssh connection does.
  assert _end(resumed)[0] == 129
  assert resumed.checkpoint_counts()['learner_steps'] > saved
  assert before & set(_unrolls(program, audit.TRAINED)[trained:])


@pytest.mark.nightly  # Two processes compile searches, for more than a minute.
def test_training_continues_while_a_relabeller_is_down_and_after_its_restart(start_program):
  program = start_program(*MUZERO, ENDLESS)
  program.wait_until(lambda: _relabelled(program), 'the relabeller reports')
  program.wait_for_progress()
  victim = program.nodes()['relabeller-0']
  victim.suspend()  # It holds connections and does nothing.
  program.wait_for_progress()
  victim.kill()
  program.wait_for_restart('relabeller-0', victim)
  program.wait_for_progress()
  reports = _relabelled(program)
  program.wait_until(lambda: _relabelled(program) > reports, 'the relabeller reports again')
  learner = program.nodes()['inference_learner-0']
  learner.kill()
  program.wait_for_restart('inference_learner-0', learner)
  program.wait_for_progress()
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors

  trained = audit.read(program.run_dir, audit.TRAINED)
  copies = set(_unrolls(program, audit.RELABELLED))
  steps = trained.reshape(-1, 4, 2)  # Two unrolls of each batch of four are copies.
  assert np.all(np.isin(steps[:, :, 0], list(copies)) == [False, False, True, True])
  assert len(set((np.array(list(copies)) >> 32).tolist())) == 2, 'of one incarnation alone'
  origins = audit.origins(program.run_dir, trained[:, 0])
  assert set(origins.tolist()) <= set(_unrolls(program, audit.PRODUCED))


@pytest.mark.nightly
def test_q_learning_continues_once_a_node_at_its_two_tables_has_restarted(start_program):
  program = start_program(*QT_OPT, ENDLESS)
  program.wait_until(lambda: _relabelled(program), 'the updater reports')
  for name in ('relabeller-0', 'replay-0', 'inference_learner-0', 'actor-0'):
    program.wait_for_progress()
    victim = program.nodes()[name]
    victim.kill()
    program.wait_for_restart(name, victim)
  program.wait_for_progress()
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors
  trained = _unrolls(program, audit.TRAINED)
  assert set(trained) <= set(_unrolls(program, audit.RELABELLED))
  origins = audit.origins(program.run_dir, np.array(trained))
  assert set(origins.tolist()) <= set(_unrolls(program, audit.PRODUCED))


@pytest.mark.nightly
def test_soft_actor_critic_continues_after_the_loss_of_each_node_and_resumes_with_its_replay(
  start_program, train
):
  program = start_program(*SAC, ENDLESS)
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  for name in ['inference_learner-0', *NODES]:
    program.wait_for_progress()
    victim = program.nodes()[name]
    victim.kill()
    program.wait_for_restart(name, victim)
  program.wait_for_progress()
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors
  saved, before = program.checkpoint_counts(), set(_unrolls(program, audit.PRODUCED))
  trained = len(_unrolls(program, audit.TRAINED))
  resumed = train(f'--resume={program.run_dir}', f'--num_steps={saved["actor_steps"] + 500}')
  assert resumed.returncode == 0, resumed.stderr
  done = DONE.fullmatch(resumed.stdout.splitlines()[-1])
  assert int(done[4]) > saved['learner_steps']
  learned = _unrolls(program, audit.TRAINED)
  assert set(learned) <= set(_unrolls(program, audit.PRODUCED))
  assert before & set(learned[trained:])


@pytest.mark.nightly
@pytest.mark.parametrize('period, source', [(1, 'resuming from'), (0, 'of a neighbour')])
def test_peers_keep_training_while_one_is_down_and_mix_with_it_after_its_restart(
  start_program, period, source
):
  program = start_program(f'--checkpoint_period={period}', ENDLESS, small=GALA)
  program.wait_until(lambda: _mixed(program, 1), 'peer/1 has mixed')
  for k in (0, 1) if period else ():
    path = checkpoints.directory(learners.directory(program.run_dir, k))
    program.wait_until(lambda p=path: checkpoints.newest(p) is not None, f'peer/{k} can resume')
  for name in ('peer-0', 'peer-1', 'monitor-0', 'evaluator-0'):
    victim = program.nodes()[name]
    victim.suspend()  # It holds connections and does nothing.
    others = [k for k in (0, 1) if name != f'peer-{k}']
    steps = {k: _steps(program, k) for k in others}
    if name.startswith('peer'):
      program.wait_until(lambda k=others[0], s=steps: _steps(program, k) > s[k], 'the other trains')
    victim.kill()
    program.wait_for_restart(name, victim)
    mixed = [_mixed(program, k) for k in (0, 1)]
    for k in (0, 1):
      program.wait_until(lambda k=k, m=mixed: _mixed(program, k) > m[k], f'peer/{k} reports')
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors
  for k in (0, 1):
    with open(node_files.log_path(program.run_dir, f'peer/{k}')) as f:
      assert source in f.read()


@pytest.mark.nightly
def test_evolution_continues_whichever_node_is_killed_and_ends_as_if_none_had_been(
  start_program, train, tmp_path
):
  program = start_program('--checkpoint_period=0.5', ENDLESS, small=EVOLUTION)
  program.wait_for_progress()
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  for name in ('worker-0', 'evolver-0', 'worker-1', 'monitor-0', 'evaluator-0'):
    victim = program.nodes()[name]
    victim.suspend()  # It holds connections and does nothing.
    if name.startswith('worker'):
      program.wait_for_progress()  # The other worker plays its part.
    victim.kill()
    program.wait_for_restart(name, victim)
    program.wait_for_progress()
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors
  steps = program.checkpoint_counts()['actor_steps']
  whole = tmp_path / 'whole'
  process = train(*EVOLUTION, f'--num_steps={steps}', f'--run_dir={whole}', '--num_workers=1')
  assert process.returncode == 0, process.stderr
  found = saved_params.read(program.run_dir, 'newest')
  assert found.counts['actor_steps'] == steps
  assert saved_params.read(str(whole), 'newest').content == found.content


@pytest.mark.nightly
@pytest.mark.parametrize(
  'small, nodes', [(POPULATION, ()), (POPULATION_SEBULBA, ('actor-0', 'replay-0'))]
)
def test_a_population_trains_on_while_a_member_or_its_leaderboard_is_down(
  start_program, small, nodes
):
  program = start_program('--checkpoint_period=1', ENDLESS, small=small)
  for k in (1, 2):
    path = checkpoints.directory(learners.directory(program.run_dir, k))
    program.wait_until(lambda p=path: checkpoints.newest(p) is not None, f'learner {k} can resume')
  for name in ('member-0', 'member-1', 'leaderboard-0', 'monitor-0', 'evaluator-0', *nodes):
    victim = program.nodes()[name]
    victim.suspend()  # It holds connections and does nothing.
    alive = {0, 1} - {int(name[-1])} if name.startswith('member') else {0, 1}
    steps = {k: _steps(program, k, 'member') for k in alive}
    if name.startswith(('member', 'leaderboard')):
      for k in alive:
        program.wait_until(
          lambda k=k, s=steps: _steps(program, k, 'member') > s[k], f'member/{k} trains'
        )
    victim.kill()
    program.wait_for_restart(name, victim)
    ranked = len(lineage.read(program.run_dir))
    for k in (0, 1):
      program.wait_until(
        lambda k=k, n=ranked: k in {e.member for e in lineage.read(program.run_dir)[n:]},
        f'member/{k} has a new score',
      )
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143 and 'Traceback' not in errors
  events = lineage.read(program.run_dir)
  assert [event.event for event in events] == list(range(1, len(events) + 1))
  reports = [(event.member, event.incarnation, event.number) for event in events]
  assert len(set(reports)) == len(reports), 'a report counts twice'
  for event in events:
    if event.source is not None:
      assert events[event.source - 1].member == event.source_member != event.member
    identity = event.member, event.incarnation
    following = (e for e in events[event.event :] if (e.member, e.incarnation) == identity)
    if after := next(following, None):
      assert after.values == pytest.approx(event.next_values, rel=1e-6), 'the lineage is not true'


def _mixed(program, peer):
  """Returns the number of reports of a peer that has mixed parameters since its latest start."""
  return sum(n > 0 for (n,) in curves.read(program.run_dir, f'peer/{peer}', 'gossip_received'))


def _steps(program, number, group='peer'):
  return max(
    (n for (n,) in curves.read(program.run_dir, f'{group}/{number}', 'learner_steps')), default=0
  )


@pytest.mark.nightly  # test_monitor.py has the sentence, and the test above a learner that restarts.
def test_a_learner_that_dies_before_its_first_checkpoint_says_that_it_starts_from_scratch(
  start_program,
):
  program = start_program('--checkpoint_period=3600', ENDLESS)
  program.wait_for_progress()
  victim = program.nodes()['inference_learner-0']
  victim.kill()
  program.wait_for_restart('inference_learner-0', victim)
  program.wait_for_progress()
  steps = [n for (n,) in curves.read(program.run_dir, 'inference_learner/0', 'actor_steps')]
  program.launcher.terminate()
  code, errors = _end(program)
  assert code == 143
  (loss,) = [line for line in errors.splitlines() if 'from scratch' in line]
  found = re.fullmatch(
    r'warning: inference_learner/0 has no checkpoint yet: training starts from scratch, ([\d,]+) steps '
    'are lost',
    loss,
  )
  # The last report may be of a moment earlier than its death; the counters begin again at 0.
  lost = int(found[1].replace(',', ''))
  assert lost in steps and min(steps[steps.index(lost) :]) < lost
  with open(node_files.log_path(program.run_dir, 'inference_learner/0')) as f:
    assert f.read().count('has no checkpoint yet: training starts with a new state') == 2
