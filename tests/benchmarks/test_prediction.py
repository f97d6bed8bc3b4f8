"""The prediction of `benchmarks.capacity --check`: its arithmetic, what it compares, its exit codes."""

import time

import pytest
from absl import flags

from benchmarks import capacity, costs, end_to_end, output, pipeline, prediction
from programs import registry
from programs.options import configs

_US = 1e-6
STAGES = {
  'environment': {'cpu': {'actor': 2 * _US}, 'python': 2 * _US},
  'rpc': {'cpu': {'actor': 3 * _US, 'inference_learner': 4 * _US}, 'python': 3 * _US},
  'inference': {'cpu': {'inference_learner': 10 * _US}, 'python': 5 * _US},
  'assembling': {'cpu': {'inference_learner': 1 * _US}, 'python': 1 * _US},
  'insert': {'cpu': {'inference_learner': 2 * _US, 'replay': 1 * _US}, 'python': 1 * _US},
  'sample': {'cpu': {'inference_learner': 4 * _US, 'replay': 1 * _US}, 'python': 3 * _US},
  'update': {'cpu': {'inference_learner': 12 * _US, 'replay': 0.0}, 'python': 6 * _US},
}


def _config(**given):
  return configs.make_config(registry.load('sebulba'), given)


def _apart(stages):
  """Returns stages as they are with --inference_nodes=1."""
  name = {'sample': 'learner', 'update': 'learner'}
  return {
    stage: cost
    | {
      'cpu': {
        n.replace('inference_learner', name.get(stage, 'inference')): c
        for n, c in cost['cpu'].items()
      }
    }
    for stage, cost in stages.items()
  }


@pytest.fixture(autouse=True)
def overhead(monkeypatch):
  """10 us a row of a full inference batch of 32."""
  monkeypatch.setattr(prediction, 'BATCH_OVERHEAD', 320 * _US)


def test_a_rate_is_limited_by_the_cores_or_by_one_interpreter():
  found = prediction.predict(STAGES, _config(), 1.0)
  assert found.cpu == pytest.approx(50 * _US) and found.interpreter == pytest.approx(30 * _US)
  assert (found.steps_per_second, found.limit) == (pytest.approx(16_000), 'the cores')
  found = prediction.predict(STAGES, _config(), 4.0)
  assert found.steps_per_second == pytest.approx(1 / (30 * _US))
  assert found.limit == 'the interpreter of the inference-learner'


def test_a_batch_of_more_rows_costs_a_step_less():
  found = prediction.predict(STAGES, _config(envs_per_actor=128, inference_batch_size=128), 1.0)
  assert found.cpu == pytest.approx(42.5 * _US) and found.interpreter == pytest.approx(22.5 * _US)


def test_inference_apart_has_an_interpreter_of_its_own():
  found = prediction.predict(_apart(STAGES), _config(inference_nodes=1), 4.0)
  assert found.steps_per_second == pytest.approx(1 / (21 * _US))
  assert found.limit == 'the interpreter of the inference'


def test_what_other_processes_use_is_not_left():
  groups = {'actor': {'busy': 0.5}, 'inference_learner': {'busy': 0.7}}
  assert prediction.cores_left({'groups': groups, 'machine_busy_share': 0.6}, 2) == 2
  assert prediction.cores_left({'groups': groups, 'machine_busy_share': 0.9}, 2) == pytest.approx(
    1.4
  )
  assert prediction.cores_left({'groups': groups, 'machine_busy_share': 1.0}, 2) == pytest.approx(
    1.2
  )


@pytest.mark.parametrize(
  'share, busy, code, words',
  [
    (0.9, 0.6, 0, 'within'),
    (1.15, 0.6, 0, 'within'),
    (0.7, 0.6, 1, 'more than'),
    (0.9, 1.0, 2, 'within'),
  ],
)
def test_a_check_fails_if_the_prediction_is_off_by_more_than_a_fifth_or_the_machine_is_not_quiet(
  share, busy, code, words, monkeypatch, capsys
):
  # Costs before and after the run, of which the mean is that of STAGES.
  sets = [
    {
      name: {'cpu': {n: k * c for n, c in cost['cpu'].items()}, 'python': k * cost['python']}
      for name, cost in STAGES.items()
    }
    for k in (0.5, 1.5)
  ]
  group = {'nodes': 2, 'busy': 1.2, 'cpu_per_step': 40 * _US, 'memory': 0.0, 'shares': {}}
  left = 2.0 if busy < 1 else 1.2
  predicted = 0.8 * left / (50 * _US)
  whole = {
    'groups': {'actor': group},
    'steps_per_second': share * predicted,
    'machine_busy_share': busy,
  }
  pauses = []

  def measured(given, seconds, repeats, pause_ms):
    pauses.append(pause_ms)
    return {'stages': sets[len(pauses) - 1]}

  monkeypatch.setattr(pipeline, 'measure_stages', measured)
  monkeypatch.setattr(end_to_end, 'measure', lambda *_: whole)
  monkeypatch.setattr(output, 'cores', lambda: 2)
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  assert capacity.check(_config(), {}) == code
  said = capsys.readouterr().out
  assert f'predicted {predicted:,.0f} steps/s, limited by the cores' in said
  assert f'ratio {share:.2f}, {words} 20%' in said and f'left {left:.2f} of 2 cores' in said
  assert ('is not quiet' in said) == (code == 2)
  assert pauses == [prediction.PAUSE_MS] * 2


def test_a_stage_may_wait_before_each_call(monkeypatch):
  slept = []
  monkeypatch.setattr(time, 'sleep', slept.append)
  cost = costs.measure(lambda: 2.0, 0.0, 2, 'here', calls=(3, 3), pause=0.5)
  assert slept.count(0.5) == len(slept) == costs._SLEEPS + 2 * 3
  assert set(cost.cpu) == {'here'}
