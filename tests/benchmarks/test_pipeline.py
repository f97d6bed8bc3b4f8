"""The benchmark of the data path, at its smallest."""

import pytest

from benchmarks import end_to_end
from tests.benchmarks import smoke

STAGES = ['environment', 'rpc', 'inference', 'assembling', 'insert', 'sample', 'update']


@pytest.mark.program
@pytest.mark.nightly  # No run depends on a benchmark.
def test_stages_and_nodes_are_measured_and_compared(tmp_path):
  flags = ('--stage_seconds=0.02', '--repeats=1', '--seconds=1', '--warm_up=0')
  lines, record = smoke.run('pipeline', tmp_path, 'pipeline-sebulba-catch', *flags, *smoke.SMALL)
  assert [line.split()[0] for line in lines[2:10]] == [*STAGES, 'sum']
  assert list(record['stages']) == STAGES
  nodes = {stage: set(cost['cpu']) for stage, cost in record['stages'].items()}
  assert nodes['environment'] == {'actor'}
  assert nodes['rpc'] == {'actor', 'inference_learner'}
  assert nodes['insert'] == nodes['sample'] == {'inference_learner', 'replay'}
  assert all(sum(cost['cpu'].values()) > 0 for cost in record['stages'].values())
  total = sum(sum(cost['cpu'].values()) for cost in record['stages'].values())
  assert record['ideal_steps_per_second'] == pytest.approx(record['cpu_cores'] / total)
  whole = record['end_to_end']
  assert record['ratio'] == pytest.approx(
    whole['steps_per_second'] / record['ideal_steps_per_second']
  )
  assert whole['compiled_after_warm_up'] == 0
  assert any('checked' in name for name in whole['compiled_before']), 'the update is not in the log'
  # Of ten rows of Catch, nine are decisions.
  assert whole['actor_steps_per_second'] == pytest.approx(0.9 * whole['steps_per_second'], rel=0.08)
  assert {name: group['nodes'] for name, group in whole['groups'].items()} == {
    'actor': 2,
    'inference_learner': 1,
    'launcher': 1,
    'monitor': 1,
    'replay': 1,
  }
  used = sum(group['cpu_per_step'] for group in whole['groups'].values())
  assert used == pytest.approx(sum(node['cpu_per_step'] for node in whole['nodes'].values()))
  assert whole['nodes']['inference_learner-0']['busy'] > 0


def test_compilations_are_read_from_the_learners_log(tmp_path):
  (tmp_path / 'logs').mkdir()
  (tmp_path / 'logs' / 'inference_learner-0.log').write_text(
    'W1121 11:12:00.1 1 dispatch.py:1] Finished XLA compilation of jit(answer) in 1.5 sec\n'
    'I1121 11:12:01.1 1 other.py:1] Finished something else in 2 sec\n'
    'W1121 11:12:02.1 1 dispatch.py:1] Finished XLA compilation of jit(checked) in 2e-3 sec\n'
  )
  assert end_to_end.compilations(str(tmp_path)) == [('jit(answer)', 1.5), ('jit(checked)', 0.002)]


def test_the_cost_of_a_step_counts_what_a_ratio_of_samples_to_inserts_repeats(tmp_path):
  """R2D2 samples unrolls several times: a step has so much more of a sample and an update."""
  from benchmarks.stages import Stages
  from programs import r2d2
  from programs.options.configs import make_config

  one, four = (
    Stages('r2d2', make_config(r2d2, {'samples_per_insert': ratio}), 0.0, 1, str(tmp_path))
    for ratio in (1.0, 4.0)
  )
  assert one._steps_per_batch == 4 * four._steps_per_batch == 32 * 20


@pytest.mark.slow
def test_an_unsound_option_is_rejected_in_one_sentence():
  process = smoke.command('pipeline', '--env=catch', '--batch_size=3', '--learner_devices=0,1')
  assert process.returncode == 2
  assert process.stderr.splitlines()[-1].startswith('error: --batch_size=3')
