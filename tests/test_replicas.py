"""--num_replicas=2 as a user runs it: two host units in real processes, with a deadline."""

import json
import re

import psutil
import pytest

from benchmarks.running import processes
from rundir import audit, curves
from tests.launchers import replicas
from tests.programs_under_test import DONE, ENDLESS, SMALL, SMALL_REPLAY, launch, log_text

REPLICAS = {'inference_learner-0', 'inference_learner-1'}


def _assert_the_same(run_dir, num_replicas=2):
  """Asserts that the replicas have trained to the same parameters; returns the summary."""
  summary = json.loads((run_dir / 'summary.json').read_text())
  assert list(summary['learners']) == [f'inference_learner/{i}' for i in range(num_replicas)]
  learners = summary['learners'].values()
  assert {each['learner_steps'] for each in learners} == {summary['learner_steps']} != {0}
  assert len({each['params_crc32'] for each in learners}) == 1
  assert sum(each['actor_steps'] for each in learners) == summary['actor_steps']
  assert min(each['actor_steps'] for each in learners) > 100
  assert (run_dir / 'params' / 'final.msgpack').stat().st_size > 1000
  assert processes(str(run_dir)) == []
  return summary


# The run that is resumed below does the same for Sebulba, without an evaluator.
@pytest.mark.nightly
@pytest.mark.parametrize(
  'program, options',
  [('sebulba', ()), ('r2d2', (*SMALL_REPLAY, '--num_replay_shards=2'))],
)
def test_replicas_train_to_the_same_step_and_the_same_parameters(train, tmp_path, program, options):
  run_dir = tmp_path / 'run'
  process = train(
    *SMALL,
    *options,
    f'--program={program}',
    '--num_replicas=2',
    f'--run_dir={run_dir}',
  )
  assert process.returncode == 0, process.stderr
  done = DONE.fullmatch(process.stdout.splitlines()[-1])
  summary = _assert_the_same(run_dir)
  assert summary['actor_steps'] == int(done[2]) >= 2000
  assert summary['learner_steps'] == int(done[4])
  assert 'Traceback' not in log_text(run_dir)


@pytest.fixture
def running(start_program):
  """Two replicas that train until they are stopped; returns the program and its nodes by name."""
  program = start_program(
    '--num_replicas=2', '--eval_envs=0', '--checkpoint_period=0.5', '--audit', ENDLESS
  )
  program.wait_until(
    lambda: curves.read(program.run_dir, 'inference_learner/1', 'learner_steps'),
    'both replicas learn',
  )
  program.wait_until(program.checkpoint_counts, 'a checkpoint')
  return program, program.nodes()


def test_replicas_restart_together_when_one_is_killed_and_the_run_may_resume_with_more(
  running, train, tmp_path
):
  program, _ = running
  for victim in ('inference_learner-1', 'inference_learner-0'):  # The latter has the coordinator.
    before = program.nodes()
    before[victim].kill()
    program.wait_until(lambda b=before: _replaced(program, b) >= REPLICAS, 'both have restarted')
    program.wait_for_progress()
    assert _replaced(program, before) == REPLICAS
  program.launcher.terminate()
  code, _, errors = program.end()
  assert code == 143
  said = re.findall(r'node (\S+) was killed by SIGKILL; restarting all 2 nodes of its job', errors)
  assert said == ['inference_learner/1', 'inference_learner/0']
  assert errors.count('; restarting') == 2, errors

  run_dir = tmp_path / 'run'
  assert 'proxy' not in log_text(run_dir)
  saved = program.checkpoint_counts()
  assert saved['actor_steps'] > saved['learner_steps'] > 0
  longer = f'--num_steps={saved["actor_steps"] + 2000}'
  resumed = train(f'--resume={run_dir}', longer, '--num_replicas=3')
  assert resumed.returncode == 0, resumed.stderr
  summary = _assert_the_same(run_dir, 3)
  assert summary['learner_steps'] > saved['learner_steps']
  # Each replica has continued with its share of the steps, and none has been counted twice.
  assert saved['actor_steps'] + 2000 <= summary['actor_steps'] < saved['actor_steps'] + 6000
  assert (
    min(each['actor_steps'] for each in summary['learners'].values()) > saved['actor_steps'] // 3
  )
  produced, trained = (
    audit.read(run_dir, name)[:, 0].tolist() for name in (audit.PRODUCED, audit.TRAINED)
  )
  assert len(set(trained)) == len(trained), 'an unroll of the queue was learned from twice'
  assert set(trained) <= set(produced)


def _replaced(program, before):
  """Returns the names of the nodes that have other processes than before."""
  return {n for n, p in program.nodes().items() if n in before and p.pid != before[n].pid}


@pytest.mark.nightly  # A learner that misses another one ends in the test above as well.
def test_ctrl_c_ends_learners_that_wait_for_each_other(running):
  program, nodes = running
  output, errors = replicas.stop_while_the_second_is_suspended(program, 'inference_learner')
  assert 'Traceback' not in output + errors
  assert psutil.wait_procs(nodes.values(), timeout=0)[1] == []


@pytest.mark.slow
def test_each_replica_has_its_own_replay_and_actors(tmp_path):
  process = launch('--dry_run', '--num_replicas=3', '--num_actors=4', '--num_replay_shards=2')
  assert process.returncode == 0, process.stderr
  for group, number in {'monitor': 1, 'replay': 6, 'inference_learner': 3, 'evaluator': 1}.items():
    assert re.search(rf'{group} +{number} x ', process.stdout)
  assert re.search(r'actor +12 x PyClassNode\(Actor\)', process.stdout)
  for server, number in {'replay': 6, 'monitor': 3, 'inference_learner': 3}.items():
    assert re.search(rf'inference_learner +-> {server} +{number}\n', process.stdout + '\n')
  assert re.search(r'actor +-> inference_learner +12', process.stdout)
  alone = launch('--dry_run').stdout
  assert 'inference_learner -> inference_learner' not in re.sub(' +', ' ', alone)
  assert 'one job' not in alone
