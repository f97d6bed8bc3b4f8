"""Whole programs learn, through real processes; and what should not learn does not."""

import json

import pytest

STORED = ('--program=r2d2', '--env=recall', '--eval_episodes=1000')
FROM_ZERO = (*STORED, '--replay_state=zero')
MEMORY = ('--program=r2d2', '--env=bsuite:memory_len/15', '--eval_episodes=1000')


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
  'flags, low, high',
  [
    # Calibrated on 2 cores; a random policy has -0.6 on Catch and 0 on memory_len.
    (('--num_steps=150000',), 0.95, 1.0),
    (('--num_steps=150000', '--actors_as_threads'), 0.95, 1.0),
    (('--program=impala',), 0.9, 1.0),
    (('--agent=pqn',), 0.9, 1.0),
    (('--program=r2d2',), 0.9, 1.0),
    (('--program=muzero',), 0.95, 1.0),
    (('--program=anakin',), 1.0, 1.0),
    (('--program=evolution', '--env=gymnax:CartPole-v1'), 475.0, 500.0),
    (('--program=evolution', '--env=gymnax:Acrobot-v1'), -100.0, 0.0),
    # The cue is 30 steps back: without a memory, no policy has another mean than 0.
    (MEMORY, 0.9, 1.0),
    ((*MEMORY, '--core=none'), -0.15, 0.15),
    # The cue is before the first row of the unroll: only its stored state knows it.
    (STORED, 0.9, 1.0),
    (FROM_ZERO, -0.15, 0.15),
  ],
)
def test_final_evaluation(train, tmp_path, flags, low, high):
  run_dir = tmp_path / 'run'
  process = train(*flags, f'--run_dir={run_dir}', timeout=850)
  assert process.returncode == 0, process.stderr
  summary = json.loads((run_dir / 'summary.json').read_text())
  assert low <= summary['evaluator_return'] <= high
