"""launch.py as a user runs it: real processes, with a deadline."""

import csv
import http.client
import json
import os
import signal
import socket

import portpicker
import psutil
import pytest

import evaluate
from benchmarks.running import processes
from rundir import audit, curves, final_params, learners, lineage
from tests.launchers import strangers
from tests.programs_under_test import (
  CATCH_RETURNS,
  DONE,
  ENDLESS,
  SMALL,
  SMALL_REPLAY,
  SMALL_SEARCH,
  assert_ended,
  assert_logs,
  log_text,
)
from tests.waiting import DEADLINE

# By sockets, through replay and into the core, with continuous actions; inference in nodes of its own.
APART = (
  *('--num_actors=2', '--envs_per_actor=4', '--inference_nodes=2'),
  *('--env=gymnasium:Pendulum-v1', '--core=lstm', '--core_size=8', '--audit'),
  *('--normalize_observations', '--normalize_rewards'),
)
# Bellman updaters in a node of their own.
SMALL_Q = (
  *('--env=gymnasium:Pendulum-v1', '--min_replay_size=16', '--samples_per_insert=1'),
  *('--target_update_period=10', '--num_samples=8', '--num_elites=2', '--audit'),
)
# Minibatches of one unroll each.
PPO = ('--agent=ppo', '--unroll_length=20')
# As with PPO; the core needs minibatches of unrolls.
PQN = (
  *('--agent=pqn', '--unroll_length=20', '--num_minibatches=4'),
  *('--core=lru', '--core_size=8'),
)


def test_sebulba_runs_to_its_end(finished_run):
  printed = (finished_run.parent / 'finished.txt').read_text()
  found = assert_ended(finished_run, printed, 'sebulba', 'actor', 1, 'inference_learner')
  assert found in CATCH_RETURNS
  assert_logs(finished_run, 'inference_learner-0')


@pytest.mark.parametrize(
  'program, options',
  [
    ('muzero', SMALL_SEARCH),
    ('qt_opt', SMALL_Q),
    ('r2d2', (*SMALL_REPLAY, '--num_replay_shards=2')),
    ('sac', ('--head_sizes=8', '--samples_per_insert=1', '--audit')),
    ('sebulba', APART),
    pytest.param('sebulba', PPO, marks=pytest.mark.nightly),
    ('sebulba', PQN),
    # test_warm_start.py runs IMPALA in every test run.
    pytest.param('impala', PPO, marks=pytest.mark.nightly),
    pytest.param('impala', (), marks=pytest.mark.nightly),
  ],
)
@pytest.mark.parametrize(
  'launch_type', ['local_mp', pytest.param('local_mt', marks=pytest.mark.nightly)]
)
def test_a_program_runs_to_its_end_under_every_launch_type(
  train, tmp_path, program, options, launch_type
):
  run_dir, apart = tmp_path / 'run', options == APART
  copies = program == 'qt_opt'
  process = train(
    *SMALL,
    *options,
    f'--program={program}',
    f'--lp_launch_type={launch_type}',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  asker, number = ('inference', 2) if apart else ('actor', 1)
  learner = 'learner' if apart or program == 'impala' else 'inference_learner'
  found = assert_ended(run_dir, process.stdout, program, asker, number, learner)
  if apart or program in ('qt_opt', 'sac'):
    assert -2000 < found < 0  # 200 steps with a reward from -16.3 to 0, then a truncation.
    for name in (audit.PRODUCED, audit.TRAINED, *([audit.RELABELLED] if copies else [])):
      assert len(audit.read(str(run_dir), name)) >= 80  # Unrolls: four in each update.
  else:
    assert found in CATCH_RETURNS
  if launch_type == 'local_mp':
    more = {'r2d2': {'replay-1'}, 'qt_opt': {'relabeller-0'}}.get(program, set())
    if apart:
      more = {'actor-1', 'inference-0', 'inference-1'}
    assert_logs(run_dir, f'{learner}-0', *more)


@pytest.mark.parametrize(
  'launch_type', ['local_mp', pytest.param('local_mt', marks=pytest.mark.nightly)]
)
def test_anakin_runs_to_its_end_and_on(train, tmp_path, launch_type):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=anakin', '--env=gymnax:Catch-bsuite', '--num_envs=64', '--updates_per_call=10'),
    *('--num_steps=30000', '--mlp_sizes=32', '--eval_episodes=10'),
    *(f'--lp_launch_type={launch_type}', f'--run_dir={run_dir}'),
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  evaluator_return, actor_steps, frames, learner_steps, _ = done.groups()
  assert float(evaluator_return) in CATCH_RETURNS
  # Calls of 10 x 64 x 20 rows, a tenth of them no decisions.
  assert int(actor_steps) == 3 * 11_520 and actor_steps == frames
  assert int(learner_steps) == 30
  assert processes(str(run_dir)) == []
  assert json.loads((run_dir / 'summary.json').read_text())['learner_steps'] == 30
  assert (run_dir / 'learning_curve.png').read_bytes().startswith(b'\x89PNG')
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  if launch_type == 'local_mp':
    logs = {path.stem for path in (run_dir / 'logs').glob('*.log')}
    assert logs == {'anakin-0', 'evaluator-0', 'monitor-0'}
    assert 'Traceback' not in log_text(run_dir)
  else:
    for name in ('summary.json', 'final_evaluation.json'):  # As if it had been stopped before them.
      (run_dir / name).unlink()
    process = train(f'--resume={run_dir}')
    assert process.returncode == 0, process.stderr
    assert DONE.fullmatch(process.stdout.splitlines()[-1]).groups()[1:] == done.groups()[1:]

  process = train(f'--resume={run_dir}', '--num_steps=46000')
  assert process.returncode == 0, process.stderr
  assert int(DONE.fullmatch(process.stdout.splitlines()[-1]).group(4)) == 40


def test_intrinsic_rewards_learn_through_lifetimes(train, tmp_path):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=intrinsic_rewards', '--env_options=episodes=9', '--num_envs=32', '--gru_size=8'),
    *('--num_steps=30000', '--updates_per_call=20', '--eval_envs=10', '--eval_episodes=20'),
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  evaluator_return, actor_steps, _, learner_steps, _ = done.groups()
  assert -9 < float(evaluator_return) < 9  # Lifetimes of nine choices.
  # Calls of 20 x 32 x 5 rows, a tenth of them no decisions.
  assert int(actor_steps) == 11 * 2880 and int(learner_steps) == 220
  with open(run_dir / 'logs' / 'anakin-0.csv') as f:
    ended = [row for row in csv.DictReader(f) if float(row['episodes'])]
  assert ended and all(float(row['episode_length']) == 9 for row in ended)
  assert float(ended[-1]['reward_grad_norm']) > 0
  assert 'Traceback' not in log_text(run_dir)


def _ended(process, run_dir):
  """Asserts that peers have trained Catch to the end; returns the last line's match and the summary."""
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  assert float(done[1]) in CATCH_RETURNS
  assert processes(str(run_dir)) == []
  return done, json.loads((run_dir / 'summary.json').read_text())


def test_two_peers_run_to_their_end(train, tmp_path):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=gala', '--num_peers=2', '--num_steps=4000', '--updates_per_call=5'),
    *('--mlp_sizes=16', '--eval_episodes=10', f'--run_dir={run_dir}'),
  )
  done, summary = _ended(process, run_dir)
  # Each peer does calls of 5 x 16 x 5 rows, a tenth of them no decisions, up to 2000.
  each = {'actor_steps': 2160, 'environment_frames': 2160, 'learner_steps': 30}
  assert summary['learners'] == {'peer/0': each, 'peer/1': each}
  assert int(done[2]) == summary['actor_steps'] == 4320 and int(done[4]) == 30
  counts = learners.counts(str(run_dir))
  assert counts == {'actor_steps': 4320, 'environment_frames': 4320, 'learner_steps': 30}
  for path in learners.directories(str(run_dir)):
    assert os.path.getsize(final_params.path(path)) > 1000
  logs = {path.stem for path in (run_dir / 'logs').glob('*.log')}
  assert logs == {'peer-0', 'peer-1', 'evaluator-0', 'monitor-0'}
  assert 'Traceback' not in log_text(run_dir)
  losses = [curves.read(str(run_dir), f'peer/{i}', 'learner_steps', 'loss') for i in range(2)]
  assert losses[0] and losses[0] != losses[1], 'peers have the same random numbers'


def test_evolution_strategies_run_to_their_end_and_are_evaluated(train, tmp_path, capsys):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=evolution', '--num_pairs=16', '--virtual_workers=4', '--num_steps=2000'),
    *('--mlp_sizes=8', '--eval_episodes=10', f'--run_dir={run_dir}'),
  )
  done, summary = _ended(process, run_dir)
  # A generation is one episode of nine steps for each of 32 policies.
  each = {'actor_steps': 2016, 'environment_frames': 2016, 'learner_steps': 7}
  assert summary['learners'] == {'evolver/0': each} and int(done[2]) == 2016
  logs = {path.stem for path in (run_dir / 'logs').glob('*.log')}
  assert logs == {'evolver-0', 'worker-0', 'worker-1', 'evaluator-0', 'monitor-0'}
  assert 'Traceback' not in log_text(run_dir)
  assert evaluate.main([str(run_dir), '--episodes=20']) == 0
  assert 'return ' in capsys.readouterr().out


@pytest.mark.parametrize(
  'flags',
  [
    ('--program=population', '--updates_per_call=2', '--num_envs=8'),
    pytest.param(
      (
        *('--program=population_sebulba', '--envs_per_actor=8', '--env_groups=1', '--batch_size=8'),
        '--selection=tournament',
      ),
      marks=pytest.mark.nightly,
    ),
  ],
)
def test_a_population_runs_to_its_end_with_the_parameters_of_its_best(train, tmp_path, flags):
  run_dir = tmp_path / 'run'
  process = train(
    *flags,
    # So many that some member is replaced, even if all of them train one after the other.
    *('--num_members=3', '--num_steps=90000', '--unroll_length=5', '--ready_steps=400'),
    *('--mlp_sizes=16', '--eval_episodes=10', f'--run_dir={run_dir}'),
  )
  done, summary = _ended(process, run_dir)
  assert summary['learners'].keys() == {f'member/{k}' for k in range(3)}
  for counts in summary['learners'].values():
    assert counts['actor_steps'] >= 30000
  assert (
    int(done[2])
    == summary['actor_steps']
    == sum(counts['actor_steps'] for counts in summary['learners'].values())
  )
  events = lineage.read(str(run_dir))
  assert {event.member for event in events} == {0, 1, 2} and len(events) >= 9
  copies = [event for event in events if event.source is not None]
  assert copies, 'nobody is ever copied'
  for event in copies:
    copied = events[event.source - 1]
    assert copied.member == event.source_member and copied.score > event.score
    assert event.next_values.keys() == {'learning_rate', 'entropy_cost'}
  best_score, number = curves.read(str(run_dir), 'leaderboard/0', 'best_score', 'events')[-1]
  last = {event.member: event for event in events[: int(number)]}
  assert best_score == pytest.approx(max(event.score for event in last.values()), rel=1e-4)
  for event in copies:
    following = [later for later in events[event.event :] if later.member == event.member]
    if following:
      assert following[0].values == pytest.approx(event.next_values, rel=1e-6)
  for path in learners.directories(str(run_dir)):
    assert os.path.getsize(final_params.path(path)) > 1000
  assert 'Traceback' not in log_text(run_dir)


@pytest.mark.nightly
def test_two_peers_of_sebulbas_parts_run_to_their_end(train, tmp_path):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=gala_sebulba', '--num_peers=2', '--num_steps=4000', '--mlp_sizes=16'),
    *('--mixing=push_sum', '--eval_episodes=10', f'--run_dir={run_dir}'),
  )
  done, summary = _ended(process, run_dir)
  peers = summary['learners']
  assert peers.keys() == {'inference_learner/0', 'inference_learner/1'}
  for peer, counts in peers.items():
    assert counts['actor_steps'] >= 2000 and counts['learner_steps'] >= 20
    assert max(curves.read(str(run_dir), peer, 'gossip_received')) > (0.0,)
  assert int(done[2]) == sum(counts['actor_steps'] for counts in peers.values())
  for path in learners.directories(str(run_dir)):
    assert os.path.getsize(final_params.path(path)) > 1000
  assert 'Traceback' not in log_text(run_dir)


@pytest.mark.nightly
def test_muzero_on_anakin_plays_itself_and_is_evaluated_against_an_opponent(train, tmp_path):
  run_dir = tmp_path / 'run'
  process = train(
    *('--program=anakin', '--agent=muzero', '--env=pgx:tic_tac_toe', '--num_simulations=2'),
    *('--env_options=opponent=perfect', '--num_steps=3000', '--updates_per_call=5'),
    *('--mlp_sizes=8', '--hidden_state_size=8', '--head_size=8', '--target_update_period=5'),
    '--eval_episodes=20',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  evaluator_return, actor_steps, _, learner_steps, _ = done.groups()
  assert -1 <= float(evaluator_return) <= 0  # The perfect player never loses.
  # Three calls of 5 x 32 x 8 rows, of which the ninth unroll is the first to be learned from.
  assert 3000 <= int(actor_steps) < 3 * 5 * 32 * 8
  assert int(learner_steps) == 15 - 8
  with open(run_dir / 'logs' / 'anakin-0.csv') as f:
    won = [float(row['episode_return']) for row in csv.DictReader(f)]  # Of games of self-play.
  assert any(0.5 < share < 1 for share in won)
  assert 'Traceback' not in log_text(run_dir)


@pytest.mark.nightly
def test_ppo_on_anakin_learns_until_its_rate_is_zero_and_again_in_a_longer_run(train, tmp_path):
  run_dir, found = tmp_path / 'run', []
  small = ('--num_envs=32', '--updates_per_call=5', '--mlp_sizes=16', '--eval_episodes=10')
  for flags in (
    ('--program=anakin', '--agent=ppo', *small, '--num_steps=40000', f'--run_dir={run_dir}'),
    (f'--resume={run_dir}', '--num_steps=80000'),
  ):
    process = train(*flags)
    assert process.returncode == 0, process.stderr
    config = json.loads((run_dir / 'config.json').read_text())['config']
    with open(run_dir / 'logs' / 'anakin-0.csv') as f:
      *_, last = csv.DictReader(f)
    assert float(last['learner_steps']) >= config['learning_rate_decay_steps']
    assert float(last['learning_rate']) == 0.0
    params = (run_dir / 'params' / 'final.msgpack').read_bytes()
    found.append((config['learning_rate_decay_steps'], params))
  (steps, params), (more_steps, later_params) = found
  assert (steps, more_steps) == (40, 80)
  assert params != later_params


@pytest.mark.parametrize('presses', [2, pytest.param(1, marks=pytest.mark.nightly)])
def test_no_stranger_reaches_a_node_and_ctrl_c_ends_the_program_without_noise(
  start_program, presses, tmp_path
):
  """The page is in the user's network, though the nodes are not."""
  port = portpicker.pick_unused_port()
  program = start_program(ENDLESS, '--web', f'--web_port={port}')
  program.wait_for_progress()
  page = http.client.HTTPConnection('127.0.0.1', port, timeout=DEADLINE)
  page.request('GET', '/state')
  assert page.getresponse().status == 403  # It wants its token.
  nodes = program.nodes()
  assert len(nodes) == 5
  if not strangers.obstacle():
    served = {name: found for name, p in nodes.items() if (found := strangers.ports(p.pid))}
    assert served.keys() == {'monitor-0', 'replay-0', 'inference_learner-0'}
    for servers in served.values():
      assert strangers.reached(servers) == set()
  if strangers.obstacle() or os.geteuid() == 0:  # Root gets into any network.
    own = strangers.certificate_of(program.launcher.pid)
    written = tmp_path / 'unpickled'
    answers = {n: strangers.answers(p.pid, own, str(written)) for n, p in nodes.items()}
    if strangers.obstacle():  # Reverb, which answers everybody, has no network of its own.
      answers['replay-0'] = {k: a for k, a in answers['replay-0'].items() if a['own'] == 'accepted'}
    counts = {
      'monitor-0': 1,
      'replay-0': 1,
      'inference_learner-0': 1,
      'actor-0': 0,
      'evaluator-0': 0,
    }
    assert {name: [*found.values()] for name, found in answers.items()} == {
      name: count * [strangers.CLOSED] for name, count in counts.items()
    }
    assert not written.exists()

  for _ in range(presses):
    program.launcher.send_signal(signal.SIGINT)
  code, output, errors = program.end()
  assert code == 130
  assert 'Traceback' not in output + errors
  assert 'done:' not in output
  assert psutil.wait_procs(nodes.values(), timeout=0)[1] == []
  with pytest.raises(ConnectionRefusedError):
    socket.create_connection(('127.0.0.1', port))
